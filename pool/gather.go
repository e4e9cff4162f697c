package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/pool/plan"
)

// snapshot is what a pass sees of a pool's pods.
type snapshot struct {
	have plan.Have
	// versions are the resource versions by UID, for conditional deletes.
	versions map[string]string
	// expires is when an expectation ends for lack of a sign; zero = never.
	expires time.Time
}

// gather sees the pods of a pool, and of its runner, as the watch shows them and this manager's writes will change them.
func gather(n *namespaceCache, expect *expectations, k key, runner string, p *pool) snapshot {
	s := snapshot{versions: map[string]string{}}
	expected, expires := expect.of(k.namespace, runner)
	s.expires = expires
	// The runner's other pools only matter for its limit; to look at them all for each pool would be waste.
	index, value := byPool, k.name
	limited := p != nil && p.runner.Limit > 0
	if limited {
		index, value = byRunner, runner
	}
	for _, pod := range n.podsBy(index, value) {
		delete(expected, pod.Name)
		seen := podOf(pod)
		if expect.deleting(pod.UID) {
			seen.State, seen.Trouble = plan.Ending, plan.Trouble{}
		}
		if key := (key{pod.Namespace, labelPool(pod)}); key != k {
			s.have.Others = countOther(s.have.Others, seen.State)
			continue
		}
		s.versions[seen.UID] = pod.ResourceVersion
		if p != nil && seen.Template == p.template(seen.IdleTime) {
			seen.Template = current
		}
		s.have.Pods = append(s.have.Pods, seen)
	}
	for name, c := range expected {
		state := plan.Warming
		if c.uid != "" && expect.deleting(c.uid) {
			state = plan.Ending
		}
		switch {
		case c.pool == k:
			s.versions[string(c.uid)] = c.resourceVersion
			s.have.Pods = append(s.have.Pods, plan.Pod{
				Name: name, UID: string(c.uid), State: state, Created: c.created, Moved: c.created, Template: current,
			})
		case limited:
			s.have.Others = countOther(s.have.Others, state)
		}
	}
	return s
}

// current stands for the template hash of a pod that we would create today. The idle time, which is part of a template,
// changes with policies: a pod that differs in nothing else is not out of date.
const current = "current"

func countOther(o plan.Others, state plan.State) plan.Others {
	switch state {
	case plan.Warming, plan.Idle, plan.Claimed:
		o.Live++
	case plan.Ending:
		o.Ending++
	case plan.Expired, plan.Failed, plan.Finished:
	}
	return o
}

// version is the pod's resource version, false where it isn't known yet.
func (s snapshot) version(uid string) (types.UID, string, bool) {
	v := s.versions[uid]
	return types.UID(uid), v, uid != "" && v != ""
}
