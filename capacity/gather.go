package capacity

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	poolplan "idlecount.dev/idlecount/pool/plan"
)

// part is one capacity in a pass: what is wanted of it, and what there is.
type part struct {
	*spec
	now           time.Time
	anchor        *corev1.ConfigMap  // nil where it has to be made
	deployment    *appsv1.Deployment // nil where there is none
	before        status.Status
	want          plan.Want
	have          plan.Have
	held, pending int       // pause pods that have a node, and that have none; of a buffer what its autoscaler provides for, and the rest
	again         time.Time // when to look at the quotas, or at the buffer, again; zero = when they change
	memory        *memory
}

// outdated says whether the pause pods that are there differ from those that would be made today.
func (p *part) outdated() bool {
	return p.deployment != nil && p.deployment.Annotations[factory.AnnotationTemplate] != p.hash
}

// tally is when what quotas leave room for was worked out last, and what that has been of late. It is worked out again when a
// quota has changed or a pause pod has come. Not when one has gone: used falls a moment later, and to look at it
// meanwhile would take the pod that has gone for somebody else's.
type tally struct {
	of     string // the pause pod and the headroom that it is for
	quotas string // their versions
	pods   int
	rooms  plan.Rooms
}

// scene is a namespace at one time: what passes act on and previews tell of.
type scene struct {
	now    time.Time // by which policies go
	passed time.Time // by which it is seen how long something holds; the two differ in tests only
	cache  *namespaceCache
	recall func(key) *memory
}

// gather sees what there is of a runner's capacities, which share its limit.
func (s scene) gather(list []*spec) []*part {
	label := factory.RunnerLabel(list[0].runner)
	jobs := live(s.cache.jobs, label)
	parts := make([]*part, 0, len(list))
	for _, one := range list {
		p := s.see(one)
		p.have.Jobs = jobsOf(jobs, one, list)
		parts = append(parts, p)
	}
	shareLimit(list[0].runner, len(jobs), len(live(s.cache.idle, label)), parts)
	return parts
}

// see sees what there is of one capacity, but for its jobs.
func (s scene) see(one *spec) *part {
	k, d := one.key, one.calendar.At(s.now)
	p := &part{
		spec: one, now: s.now, memory: s.recall(k),
		anchor: s.cache.anchor(k.namespace, k.name), deployment: s.cache.deployment(k.namespace, k.name),
		want: plan.Want{Count: d.IdleCount, ScaleFactor: d.ScaleFactor, ScaleFactorLimit: d.ScaleFactorLimit, IdleTime: d.IdleTime},
		have: plan.Have{Room: plan.NoBound, QuotaFor: plan.NoBound},
	}
	if p.anchor != nil {
		p.before, _ = status.Of(p.anchor) // what can't be read is written anew
		p.want.Drained = p.anchor.Annotations[factory.AnnotationDrained] == "true"
		p.want.Paused = p.anchor.Annotations[factory.AnnotationPaused] == "true"
	}
	given := 0
	p.held, p.pending, given = s.pauses(k.name)
	if given > 0 {
		p.memory.givenAt = s.now
	}
	p.have.Given = plan.Given{Left: p.held + p.pending - given, At: p.memory.givenAt}
	if d := p.deployment; d != nil {
		p.have.Held = int(*d.Spec.Replicas)
		p.have.Surplus, _ = time.Parse(time.RFC3339, d.Annotations[factory.AnnotationSurplusSince]) // zero where there is none
	}
	if !p.buffered() {
		p.have.QuotaFor = s.quotaRoom(p)
		return p
	}
	// A buffer has no pods that a quota could count, and its anchor knows what it holds.
	if p.before.Strategy == config.StrategyBuffer {
		p.have.Held, p.held, p.pending = p.before.Hold, p.before.Held, max(0, p.before.Hold-p.before.Held)
		if at := p.before.Surplus; at != nil {
			p.have.Surplus = *at
		}
	}
	return p
}

// pauses counts the pause pods of a capacity: those that have a node, those that have none, and those of both whose room a
// driver has asked for.
func (s scene) pauses(name string) (held, pending, given int) {
	for _, pod := range live(s.cache.pauses, name) {
		if pod.Spec.NodeName != "" {
			held++
		} else {
			pending++
		}
		if pod.Annotations[factory.AnnotationGivenBack] != "" {
			given++
		}
	}
	return held, pending, given
}

// jobsOf counts the jobs for which a capacity is: those with its image, or those whose image has none of its own.
func jobsOf(jobs []*corev1.Pod, s *spec, all []*spec) int {
	count := 0
	for _, pod := range jobs {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "build" })
		own := ""
		for _, other := range all {
			if i >= 0 && other.capacity.Image != "" && config.SameImage(other.capacity.Image, pod.Spec.Containers[i].Image) {
				own = other.capacity.Image
			}
		}
		if own == s.capacity.Image {
			count++
		}
	}
	return count
}

// shareLimit says what the runner's limit leaves each of its capacities: idle pods and jobs come first. What GitLab's table
// has in max_pause_pods bounds them too.
func shareLimit(r config.Runner, jobs, idle int, parts []*part) {
	room := plan.NoBound
	if r.Limit > 0 {
		room = max(0, r.Limit-jobs-idle)
	}
	if most := r.Kubernetes.Autoscaler.MaxPausePods; most > 0 {
		room = min(room, most)
	}
	asked := 0
	var demands []poolplan.Demand
	for _, p := range parts {
		want := plan.Plan(p.now, p.want, p.have).Wanted
		demands = append(demands, poolplan.Demand{Name: p.key.name, Want: want})
		asked += max(want, p.have.Held)
	}
	if asked <= room {
		return
	}
	shares := poolplan.Share(room, demands)
	for _, p := range parts {
		p.have.Room = shares[p.key.name]
	}
}

// quotaRoom is what the quotas of the namespace leave.
func (s scene) quotaRoom(p *part) int {
	var quotas []*corev1.ResourceQuota
	of, versions, pods := p.hash+fmt.Sprint(p.runner.QuotaHeadroom()), "", p.held+p.pending
	for _, key := range slices.Sorted(slices.Values(s.cache.quotas.GetStore().ListKeys())) {
		if obj, exists, err := s.cache.quotas.GetStore().GetByKey(key); err == nil && exists {
			if q, ok := obj.(*corev1.ResourceQuota); ok {
				quotas, versions = append(quotas, q), versions+" "+q.ResourceVersion
			}
		}
	}
	m := &p.memory.tally
	if m.of != of {
		*m = tally{of: of, quotas: "none yet"}
	}
	if m.quotas != versions || pods > m.pods {
		m.quotas, m.pods = versions, pods
		m.rooms.See(s.passed, plan.QuotaRoom(quotas, p.pause, p.job, pods, p.runner.QuotaHeadroom()))
	}
	room, again := m.rooms.For(s.passed, p.have.Held)
	if !again.IsZero() {
		p.again = s.now.Add(again.Sub(s.passed))
	}
	return room
}
