package chaos

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"idlecount.dev/idlecount/factory"
)

// Kind is what must not be.
type Kind string

// The kinds.
const (
	OverTarget  Kind = "over target"           // a pool has more unclaimed pods than it wants, with those that replace expiring ones
	OverLimit   Kind = "over limit"            // a runner has more pods than its limit
	TwoJobs     Kind = "two jobs"              // a pod was given to two jobs
	TwoPods     Kind = "two pods"              // a job holds two pods
	JobKilled   Kind = "deleted while claimed" // a claimed pod was deleted, and not by its driver
	Reused      Kind = "reused"                // a pod that was claimed is unclaimed again
	Churned     Kind = "churned"               // an unclaimed pod was deleted although it was wanted and well
	UnknownPool Kind = "unknown pool"          // a pod of a pool that nobody configured
	LeftOver    Kind = "left over"             // a pod is there that should be gone
)

// Violation is one thing that must not be.
type Violation struct {
	Kind    Kind
	At      time.Time
	Pool    string // namespace/name
	Pod     string
	Message string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s %s: pool %s, pod %s: %s", v.At.UTC().Format("15:04:05.000"), v.Kind, v.Pool, v.Pod, v.Message)
}

// PoolID names a pool.
type PoolID struct{ Namespace, Name string }

func (id PoolID) String() string { return id.Namespace + "/" + id.Name }

// Want is what the checker holds a pool to.
type Want struct {
	Target int    // idle pods
	Runner string // pools of one runner share its limit
	Limit  int    // 0 = none
}

// Checker keeps the state that the events of pods add up to, and the violations that it went through. Events come one after
// another, those of one pod in their order, as a watch has them; so each state it sees is one that the API server had. It
// may be used by several goroutines.
type Checker struct {
	mu           sync.Mutex
	wants        map[PoolID]Want
	emptying     bool // nothing is wanted any more
	pods         map[PoolID]map[types.UID]*corev1.Pod
	leaving      map[types.UID]bool   // whose drivers have said that they delete them
	given        map[types.UID]string // the job that a claim has given a pod to; for ever
	holder       map[string]types.UID // the pod of a job, while it has one
	limitReached map[string]time.Time // by runner, the last time
	stats        Stats
	violations   []Violation
	changed      chan struct{} // closed and replaced with each event
}

// Stats are what has happened.
type Stats struct {
	Events, Created, Claimed, Expired, Rotated, GivenBack int
	MostOver                                              int // pods beyond a pool's target at a time, that replace expiring ones
}

// NewChecker begins with no pods.
func NewChecker(wants map[PoolID]Want) *Checker {
	return &Checker{
		wants: wants, pods: map[PoolID]map[types.UID]*corev1.Pod{}, leaving: map[types.UID]bool{}, given: map[types.UID]string{},
		holder: map[string]types.UID{}, limitReached: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// Observe takes in an event at the time that it was received.
func (c *Checker) Observe(event watch.EventType, pod *corev1.Pod, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Events++
	pool := c.pods[poolOf(pod)]
	if pool == nil {
		pool = map[types.UID]*corev1.Pod{}
		c.pods[poolOf(pod)] = pool
	}
	before := pool[pod.UID]
	if before == nil {
		c.stats.Created++
	}
	gone := event == watch.Deleted
	pool[pod.UID] = pod
	c.checkClaim(before, pod, gone, at)
	c.checkEnd(before, pod, gone, at)
	if gone {
		delete(pool, pod.UID)
		if job := jobOf(pod); c.holder[job] == pod.UID {
			delete(c.holder, job)
		}
	}
	c.checkCounts(pod, at)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Given notes that a claim has given a pod to a job.
func (c *Checker) Given(pod *corev1.Pod, job string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, taken := c.given[pod.UID]; taken && other != job {
		c.violate(TwoJobs, pod, at, fmt.Sprintf("job %s got it by its claim, and so did job %s", other, job))
	}
	c.given[pod.UID] = job
}

// Leaving notes that the driver of a pod's job is about to delete it.
func (c *Checker) Leaving(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving[pod] = true
}

// Emptying says that from now on no pod is wanted.
func (c *Checker) Emptying() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptying = true
}

// checkClaim holds that a pod is bound to at most one job, a job to at most one pod, and both for ever.
func (c *Checker) checkClaim(before, pod *corev1.Pod, gone bool, at time.Time) {
	job := jobOf(pod)
	if before != nil && jobOf(before) != "" && jobOf(before) != job {
		kind := TwoJobs
		if job == "" {
			kind = Reused
		}
		c.violate(kind, pod, at, fmt.Sprintf("it was job %s's, now its job is %q", jobOf(before), job))
	}
	if job == "" || gone {
		return
	}
	if before == nil || jobOf(before) == "" {
		c.stats.Claimed++
	}
	if other, holds := c.holder[job]; holds && other != pod.UID {
		c.violate(TwoPods, pod, at, fmt.Sprintf("job %s holds the pod with UID %s too", job, other))
	}
	c.holder[job] = pod.UID
}

// checkEnd holds that a claimed pod is deleted by its driver alone, and an unclaimed one only where it isn't wanted or well.
func (c *Checker) checkEnd(before, pod *corev1.Pod, gone bool, at time.Time) {
	if pod.DeletionTimestamp == nil && !gone || before != nil && before.DeletionTimestamp != nil {
		return // lives, or was seen to begin to end
	}
	switch {
	case jobOf(pod) != "":
		if !c.leaving[pod.UID] {
			c.violate(JobKilled, pod, at, "job "+jobOf(pod)+" has it, and its driver hasn't deleted it")
		}
	case ended(pod):
		c.stats.Expired++
	case mayExpire(pod, at):
		c.stats.Rotated++
	case c.emptying: // all may go
	case c.sharesOut(poolOf(pod), at):
		c.stats.GivenBack++
	default:
		c.violate(Churned, pod, at, "it was idle or on its way, and wanted")
	}
}

// sharesOut says whether a pool may give pods back to other pools of its runner: the limit was reached a moment ago, so that
// they have to share what its jobs leave.
func (c *Checker) sharesOut(id PoolID, at time.Time) bool {
	reached, ever := c.limitReached[c.wants[id].Runner]
	return ever && at.Before(reached.Add(shareWithin))
}

// shareWithin bounds how long after the limit was reached a manager may act on it: its watch lags, another one takes over.
const shareWithin = 30 * time.Second

// checkCounts holds the counts of the pod's pool and runner.
func (c *Checker) checkCounts(pod *corev1.Pod, at time.Time) {
	id := poolOf(pod)
	want, known := c.wants[id]
	if !known {
		c.violate(UnknownPool, pod, at, "a pod with this label was created")
		return
	}
	unclaimed, expiring := 0, 0
	for _, p := range c.pods[id] {
		if !unclaimedOne(p) {
			continue
		}
		unclaimed++
		if mayExpire(p, at) {
			expiring++
		}
	}
	c.stats.MostOver = max(c.stats.MostOver, unclaimed-want.Target)
	if unclaimed-expiring > want.Target {
		c.violate(OverTarget, pod, at, fmt.Sprintf("%d unclaimed pods, %d of them about to expire, where %d are wanted", unclaimed, expiring, want.Target))
	}
	if want.Limit <= 0 {
		return
	}
	n := c.ofRunner(want.Runner)
	if n >= want.Limit {
		c.limitReached[want.Runner] = at
	}
	if n > want.Limit {
		c.violate(OverLimit, pod, at, fmt.Sprintf("the runner has %d pods and a limit of %d", n, want.Limit))
	}
}

// ofRunner counts the pods that take up a runner's limit: those that are ending hold a place too, ended ones hold none.
func (c *Checker) ofRunner(runner string) int {
	n := 0
	for id, want := range c.wants {
		if want.Runner != runner {
			continue
		}
		for _, pod := range c.pods[id] {
			if !ended(pod) {
				n++
			}
		}
	}
	return n
}

func (c *Checker) violate(kind Kind, pod *corev1.Pod, at time.Time, message string) {
	c.violations = append(c.violations, Violation{kind, at, poolOf(pod).String(), pod.Name, message})
}

func poolOf(pod *corev1.Pod) PoolID { return PoolID{pod.Namespace, pod.Labels[factory.LabelPool]} }

// jobOf is the job that a pod is bound to; namespaces of the test have a runner each, so an id stands for one job.
func jobOf(pod *corev1.Pod) string { return pod.Labels[factory.LabelJob] }

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func unclaimedOne(pod *corev1.Pod) bool {
	phase := factory.PhaseOf(pod)
	return phase == factory.Warming || phase == factory.Idle
}

// mayExpire says whether a manager may have begun to replace an idle pod: it does so a minute before the pod's end, or a
// quarter of its idle time, and up to five minutes earlier, or a tenth of it (docs/controller.md).
func mayExpire(pod *corev1.Pod, at time.Time) bool {
	ready := factory.ReadySince(pod)
	idleTime, err := time.ParseDuration(pod.Annotations[factory.AnnotationIdleTime])
	if ready == nil || err != nil || idleTime <= 0 {
		return false
	}
	ahead := min(time.Minute, idleTime/4) + min(5*time.Minute, idleTime/10)
	return !at.Before(ready.Add(idleTime - ahead))
}
