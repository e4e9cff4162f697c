package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/plan"
)

// ledger is how many pause pods of each capacity of a namespace its quotas count, as was found when one of the quotas had
// changed or a pause pod had come. Not when one has gone: used falls a moment later, and to look at it meanwhile would take the
// pod that has gone for somebody else's.
type ledger struct {
	quotas string // their versions
	there  map[string]int
}

// see looks at the quotas and the pause pods of all capacities.
func (l *ledger) see(quotas string, parts []*part) {
	come := func(p *part) bool { return p.held+p.pending > l.there[p.key.name] }
	if l.there != nil && l.quotas == quotas && !slices.ContainsFunc(parts, come) {
		return
	}
	l.quotas, l.there = quotas, map[string]int{}
	for _, p := range parts {
		l.there[p.key.name] = p.held + p.pending
	}
}

// shareQuotas says what the quotas of the namespace leave each of its capacities.
func (s scene) shareQuotas(parts []*part) {
	// A buffer has no pods that a quota could count, and of what isn't known nothing is held.
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.buffered() || p.unknown != nil })
	quotas, versions := s.cache.resourceQuotas()
	s.ledger.see(versions, parts)
	claims := make([]plan.Claim, 0, len(parts))
	for _, p := range parts {
		r := plan.Plan(p.now, p.want, p.have)
		want := min(r.Wanted, r.Hold)
		c := plan.Claim{
			Name: p.key.name, Runner: p.label, Want: want, Surplus: r.Hold - want, There: s.ledger.there[p.key.name],
			Pause: p.pause, Job: p.job, Headroom: p.runner.QuotaHeadroom(),
		}
		if p.one != nil {
			// What admission made of one that is there: the overhead of its runtime class, containers that a webhook put in.
			c.Pause, c.Job = p.one, p.job.DeepCopy()
			c.Job.Spec.Overhead = p.one.Spec.Overhead
		}
		claims = append(claims, c)
	}
	shares := plan.QuotaShares(quotas, claims)
	for _, p := range parts {
		share, bounded := shares[p.key.name]
		if !bounded {
			share = plan.NoBound
		}
		p.memory.rooms.See(s.passed, share)
		room, again := p.memory.rooms.For(s.passed, p.have.Held)
		p.have.QuotaFor = room
		if !again.IsZero() {
			p.again = s.now.Add(again.Sub(s.passed))
		}
	}
}

// footprint leaves of a pod's spec what quotas count.
func footprint(spec corev1.PodSpec) corev1.PodSpec {
	only := func(containers []corev1.Container) []corev1.Container {
		var list []corev1.Container
		for _, c := range containers {
			list = append(list, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return list
	}
	return corev1.PodSpec{
		NodeName: spec.NodeName, Containers: only(spec.Containers), InitContainers: only(spec.InitContainers),
		Resources: spec.Resources, Overhead: spec.Overhead,
		PriorityClassName: spec.PriorityClassName, ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds, // by which scopes go
	}
}
