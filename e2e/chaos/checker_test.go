package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"idlecount.dev/idlecount/factory"
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

// pod is one of pool "a" as it is born; changes make it what it is later.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: name, UID: types.UID("uid-" + name),
		Labels:      map[string]string{factory.LabelPool: "a", factory.LabelState: factory.StateIdle},
		Annotations: map[string]string{factory.AnnotationIdleTime: "30m"},
	}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func ready(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon().Add(-ago))}}
	}
}

func claimedBy(job string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[factory.LabelState], p.Labels[factory.LabelJob] = factory.StateClaimed, job
	}
}

func ending(p *corev1.Pod)  { p.DeletionTimestamp = new(metav1.NewTime(noon())) }
func expired(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func of(pool string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[factory.LabelPool] = pool }
}

// step is an event, or something that a driver says.
type step func(c *Checker)

func added(p *corev1.Pod) step    { return func(c *Checker) { c.Observe(watch.Added, p, noon()) } }
func modified(p *corev1.Pod) step { return func(c *Checker) { c.Observe(watch.Modified, p, noon()) } }
func deleted(p *corev1.Pod) step  { return func(c *Checker) { c.Observe(watch.Deleted, p, noon()) } }
func leaving(p *corev1.Pod) step  { return func(c *Checker) { c.Leaving(p.UID) } }
func given(p *corev1.Pod, job string) step {
	return func(c *Checker) { c.Given(p, job, noon()) }
}
func emptying(c *Checker) { c.Emptying() }

// TestTheCheckerFindsWhatMustNotBe shows it a sequence for each kind, and some that are as they should be.
func TestTheCheckerFindsWhatMustNotBe(t *testing.T) {
	justReady, nearEnd := ready(time.Second), ready(28*time.Minute+30*time.Second)
	cases := map[string]struct {
		steps []step
		found []Kind
	}{
		"a pool is filled, a pod claimed, replaced and deleted by its driver": {steps: []step{
			added(pod("1")), modified(pod("1", justReady)), added(pod("2")), modified(pod("1", justReady, claimedBy("7"))), given(pod("1"), "7"),
			added(pod("3")), leaving(pod("1")), modified(pod("1", claimedBy("7"), ending)), deleted(pod("1", claimedBy("7"), ending)),
		}},
		"a pod is claimed while it warms, and deleted at once": {steps: []step{
			added(pod("1")), modified(pod("1", claimedBy("7"))), leaving(pod("1")), deleted(pod("1", claimedBy("7"))),
		}},
		"a pod near its end is replaced before, expires and is cleaned up": {steps: []step{
			added(pod("1", nearEnd)), added(pod("2")), added(pod("3")), modified(pod("1", nearEnd, expired)),
			modified(pod("1", nearEnd, expired, ending)), deleted(pod("1", nearEnd, expired, ending)),
		}},
		"a pod near its end is deleted": {steps: []step{added(pod("1", nearEnd)), deleted(pod("1", nearEnd))}},
		"all is removed": {steps: []step{
			added(pod("1")), added(pod("2", justReady)), emptying, modified(pod("1", ending)), deleted(pod("1", ending)), deleted(pod("2", justReady)),
		}},
		"a job's driver claims again": {steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), given(pod("1"), "7"), given(pod("1"), "7")}},
		"a pool at its runner's limit gives a pod back": {steps: []step{
			added(pod("1", of("b"))), added(pod("2", of("b"))), added(pod("3", of("c"))), modified(pod("1", of("b"), ending)),
		}},
		"a pool below its runner's limit gives a pod back": {
			steps: []step{added(pod("1", of("b"))), modified(pod("1", of("b"), ending))}, found: []Kind{Churned},
		},
		"one pod too many is created": {
			steps: []step{added(pod("1")), added(pod("2")), added(pod("3"))}, found: []Kind{OverTarget},
		},
		"one pod too many beside one that is near its end": {
			steps: []step{added(pod("1", nearEnd)), added(pod("2")), added(pod("3")), added(pod("4"))}, found: []Kind{OverTarget},
		},
		"a pod is replaced that isn't near its end": {
			steps: []step{added(pod("1", ready(20*time.Minute))), added(pod("2")), added(pod("3"))}, found: []Kind{OverTarget},
		},
		"a runner has more pods than its limit, though one of them is ending": {
			steps: []step{
				added(pod("1", of("b"))), added(pod("2", of("c"))), modified(pod("2", of("c"), claimedBy("7"))), leaving(pod("2")),
				modified(pod("2", of("c"), claimedBy("7"), ending)), added(pod("3", of("b"))), added(pod("4", of("c"))),
			},
			found: []Kind{OverLimit},
		},
		"a pod changes its job": {
			steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), modified(pod("1", claimedBy("8")))}, found: []Kind{TwoJobs},
		},
		"two claims give one pod": {
			steps: []step{added(pod("1")), given(pod("1"), "7"), given(pod("1"), "8")}, found: []Kind{TwoJobs},
		},
		"a job holds two pods": {
			steps: []step{added(pod("1")), added(pod("2")), modified(pod("1", claimedBy("7"))), modified(pod("2", claimedBy("7")))}, found: []Kind{TwoPods},
		},
		"a claimed pod is deleted, and not by its driver": {
			steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), modified(pod("1", claimedBy("7"), ending)), deleted(pod("1", claimedBy("7"), ending))},
			found: []Kind{JobKilled},
		},
		"a claimed pod vanishes at once": {
			steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), deleted(pod("1", claimedBy("7")))}, found: []Kind{JobKilled},
		},
		"a claimed pod goes although nothing is wanted any more": {
			steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), emptying, deleted(pod("1", claimedBy("7")))}, found: []Kind{JobKilled},
		},
		"a claimed pod is idle again": {
			steps: []step{added(pod("1")), modified(pod("1", claimedBy("7"))), modified(pod("1", justReady))}, found: []Kind{Reused},
		},
		"a good pod is deleted": {
			steps: []step{added(pod("1", justReady)), modified(pod("1", justReady, ending)), deleted(pod("1", justReady, ending))}, found: []Kind{Churned},
		},
		"a pod on its way is deleted": {steps: []step{added(pod("1")), deleted(pod("1"))}, found: []Kind{Churned}},
		"a pod of no pool is made":    {steps: []step{added(pod("1", of("nobody's")))}, found: []Kind{UnknownPool}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			checker := newTestChecker()
			for _, step := range c.steps {
				step(checker)
			}
			var found []Kind
			for _, v := range checker.Violations() {
				found = append(found, v.Kind)
			}
			require.Equal(t, c.found, found, checker.Violations())
		})
	}
}

func newTestChecker() *Checker {
	return NewChecker(map[PoolID]Want{
		{"ci", "a"}: {Target: 2, Runner: "r"}, {"ci", "b"}: {Target: 3, Runner: "limited", Limit: 3}, {"ci", "c"}: {Target: 3, Runner: "limited", Limit: 3},
	})
}

func TestTheCheckerFindsWhatIsLeftOver(t *testing.T) {
	c := newTestChecker()
	added(pod("1"))(c)
	added(pod("2"))(c)
	deleted(pod("2", claimedBy("7")))(c)
	found := c.Close(noon())
	require.Equal(t, LeftOver, found[len(found)-1].Kind)
	require.Equal(t, "1", found[len(found)-1].Pod)
	require.Equal(t, 1, c.Remaining())
}

func TestUnfilled(t *testing.T) {
	justReady, nearEnd := ready(time.Second), ready(28*time.Minute+30*time.Second)
	cases := map[string]struct {
		pods   []*corev1.Pod
		filled bool
	}{
		"as many as wanted":                    {[]*corev1.Pod{pod("1", justReady), pod("2", justReady)}, true},
		"one of them is near its end":          {[]*corev1.Pod{pod("1", justReady), pod("2", nearEnd)}, true},
		"one near its end and its replacement": {[]*corev1.Pod{pod("1", justReady), pod("2", nearEnd), pod("3", justReady)}, true},
		"one is missing":                       {[]*corev1.Pod{pod("1", justReady)}, false},
		"one isn't ready":                      {[]*corev1.Pod{pod("1", justReady), pod("2")}, false},
		"one too many":                         {[]*corev1.Pod{pod("1", justReady), pod("2", justReady), pod("3", justReady)}, false},
		"one is still a job's":                 {[]*corev1.Pod{pod("1", justReady), pod("2", justReady), pod("3", justReady, claimedBy("7"))}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			checker := NewChecker(map[PoolID]Want{{"ci", "a"}: {Target: 2}})
			for _, p := range c.pods {
				added(p)(checker)
			}
			require.Equal(t, c.filled, len(checker.Unfilled(noon())) == 0, checker.Unfilled(noon()))
		})
	}
}
