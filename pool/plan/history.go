package plan

import (
	"slices"
	"time"
)

// learn brings the history up to date: what has failed since the last plan, and what has become Ready.
func (p *pass) learn(pods []Pod) {
	h := &p.history
	for _, pod := range pods {
		if pod.Ready.IsZero() || pod.State != Idle && pod.State != Claimed {
			continue
		}
		h.ProvenBorn = later(h.ProvenBorn, pod.Created)
		if pod.Created.After(h.FailedBorn) && !p.now.Before(pod.Ready.Add(provenAfter)) {
			h.Failures = 0
		}
	}
	for _, pod := range pods {
		switch {
		case pod.State == Failed && pod.Trouble.Outlook != Lost,
			pod.State == Warming && pod.Trouble.Outlook == Over:
			p.fail(pod, pod.Trouble)
		case pod.State == Warming && stuck(p.now, pod):
			p.fail(pod, Trouble{Over, ReasonSlow, slowMessage(pod)})
		}
	}
}

// fail notes a pod that failed. It doesn't count where a younger one has become Ready: the trouble was its own. Nor does
// it during a pause: nothing is made then, so it belongs to a failure that counts already.
func (p *pass) fail(pod Pod, trouble Trouble) {
	h := &p.history
	h.FailedBorn = later(h.FailedBorn, pod.Created)
	if pod.Created.Before(h.ProvenBorn) || p.now.Before(h.Until) {
		return
	}
	h.Failures++
	h.Until = p.now.Add(doubled(firstPause, h.Failures-1, maxPause))
	h.Reason, h.Message = trouble.Reason, trouble.Message
}

// keepOneProbe deletes the blocked pods but one, whose retries by the kubelet show when the trouble is over. When it has
// been tried for long another one takes its place, maybe on another node. Where pods that are younger than the blocked ones
// have become Ready, the trouble is not the pool's, and none is kept.
func (p *pass) keepOneProbe() {
	probe, ok := p.blocked()
	if !ok {
		return
	}
	keep := p.broken()
	if keep && p.due(probe.Moved.Add(doubled(firstProbe, p.history.Failures, maxProbe))) {
		keep = false
		p.history.Failures++
		p.history.FailedBorn = later(p.history.FailedBorn, probe.Created)
		p.history.Reason, p.history.Message = probe.Trouble.Reason, probe.Trouble.Message
	}
	p.warming = slices.DeleteFunc(p.warming, func(pod Pod) bool {
		if pod.Trouble.Outlook != Blocked || keep && pod.Name == probe.Name && pod.UID == probe.UID {
			return false
		}
		p.delete(pod, DeleteBlocked)
		return true
	})
}

// blocked is the youngest blocked pod: of all the kubelet tries it most often.
func (p *pass) blocked() (Pod, bool) {
	var youngest Pod
	found := false
	for _, pod := range p.warming {
		if pod.Trouble.Outlook == Blocked && (!found || pod.Created.After(youngest.Created)) {
			youngest, found = pod, true
		}
	}
	return youngest, found
}

// broken says whether pods of this pool can't start: the youngest blocked one is younger than all that became Ready.
func (p *pass) broken() bool {
	youngest, found := p.blocked()
	return found && youngest.Created.After(p.history.ProvenBorn)
}

// probing says whether the last pod that was heard of has failed, so that one at a time is enough.
func (p *pass) probing() bool {
	return p.history.Failures > 0 && !p.history.ProvenBorn.After(p.history.FailedBorn)
}

// doubled is base × 2^times, at most limit.
func doubled(base time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if base >= limit {
			break
		}
		base *= 2
	}
	return min(base, limit)
}
