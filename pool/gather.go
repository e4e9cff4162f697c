package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/pool/plan"
)

// snapshot is what a pass sees of a pool's pods, and of those of its runner's other pools.
type snapshot struct {
	pods   []plan.Pod
	others map[string]tally // by pool; only where the pool is looked at together with them
	// versions are the resource versions by UID, for conditional deletes.
	versions map[string]string
	// expires is when an expectation ends for lack of a sign; zero = never.
	expires time.Time
}

// tally is how many pods a pool has.
type tally struct {
	idle, warming, claimed, ending int
}

// stock are the pods that nobody has claimed and that aren't ending.
func (t tally) stock() int { return t.idle + t.warming }

// gather sees the pods of a pool as the watch shows them and this manager's writes will change them. wide counts those of
// the runner's other pools too: for each pass over each pool that would be waste. p is nil where the pool isn't configured.
func gather(n *namespaceCache, expect *expectations, k key, runner string, p *pool, wide bool) snapshot {
	s := snapshot{versions: map[string]string{}, others: map[string]tally{}}
	expected, expires := expect.of(k.namespace, runner)
	s.expires = expires
	index, value := byPool, k.name
	if wide {
		index, value = byRunner, runner
	}
	for _, pod := range n.podsBy(index, value) {
		delete(expected, pod.Name)
		ending := expect.deleting(pod.UID)
		if name := labelPool(pod); name != k.name {
			s.others[name] = s.others[name].with(stateOf(pod, ending))
			continue
		}
		seen := podOf(pod)
		if ending {
			seen.State, seen.Trouble = plan.Ending, plan.Trouble{}
		}
		s.versions[seen.UID] = pod.ResourceVersion
		if p != nil && seen.Template == p.template(seen.IdleTime) {
			seen.Template = current
		}
		s.pods = append(s.pods, seen)
	}
	for name, c := range expected {
		state := plan.Warming
		if c.uid != "" && expect.deleting(c.uid) {
			state = plan.Ending
		}
		switch {
		case c.pool == k:
			s.versions[string(c.uid)] = c.resourceVersion
			s.pods = append(s.pods, plan.Pod{
				Name: name, UID: string(c.uid), State: state, Created: c.created, Moved: c.created, Template: current,
			})
		case wide:
			s.others[c.pool.name] = s.others[c.pool.name].with(state)
		}
	}
	return s
}

// current stands for the template hash of a pod that we would create today. The idle time, which is part of a template,
// changes with policies: a pod that differs in nothing else is not out of date.
const current = "current"

func stateOf(pod *corev1.Pod, ending bool) plan.State {
	if ending {
		return plan.Ending
	}
	return podOf(pod).State
}

// with is t and one pod more.
func (t tally) with(state plan.State) tally {
	switch state {
	case plan.Warming:
		t.warming++
	case plan.Idle:
		t.idle++
	case plan.Claimed:
		t.claimed++
	case plan.Ending:
		t.ending++
	case plan.Expired, plan.Failed, plan.Finished:
	}
	return t
}

// version is the pod's resource version, false where it isn't known yet.
func (s snapshot) version(uid string) (types.UID, string, bool) {
	v := s.versions[uid]
	return types.UID(uid), v, uid != "" && v != ""
}
