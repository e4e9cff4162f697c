package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"
)

// Plan decides what the pool needs at a time. It reads no clock and changes none of its arguments.
func Plan(now time.Time, want Want, have Have) Result {
	pods := slices.SortedFunc(slices.Values(have.Pods), func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	p := &pass{now: now, want: want, others: have.Others, history: have.History}
	p.sortOut(pods)
	p.wanted = p.target(have.Former)
	p.shareLimit(have.Name, have.Former)
	p.learn(pods)
	p.keepOneProbe()
	need := 0
	switch {
	case want.Removed && want.Replaced:
		p.removeAll(want.Keep, DeleteReplaced)
	case want.Removed:
		p.removeAll(0, DeleteRemoved)
	case want.Drained:
		p.removeAll(0, DeleteDrained)
	default:
		p.keepLimit()
		p.replace()
		p.dropSurplus()
		need = p.need(have.Former)
	}
	room := p.room()
	create, again := p.creates(need, room)
	slices.SortFunc(p.deletes, func(a, b Deletion) int { return cmp.Compare(a.Name, b.Name) })
	return Result{
		Create: create, Again: again, Delete: p.deletes, Wanted: p.wanted, Counts: p.counts,
		Target: min(p.wanted, p.share), Full: want.Limit > 0 && p.live()+p.others.Live >= want.Limit,
		Shortfall: p.explain(need > room), RequeueAt: p.requeue, History: p.history,
	}
}

// pass is one plan in the making; the pods in its lists are those that stay, by name.
type pass struct {
	now     time.Time
	want    Want
	others  Others
	history History

	counts   Counts
	claimed  int   // of them those that stay
	fresh    []Pod // idle, and will be for a while
	expiring []Pod // idle, and about to end themselves
	warming  []Pod // on their way, in trouble or not
	leaving  int   // of another template and on their way when this plan was made
	lost     []Pod // out of reach: they hold room and count as nothing

	wanted  int
	share   int // of the runner's limit, for pods that nobody has claimed
	lacking int // what the runner's other pools lack of theirs
	deletes []Deletion
	requeue time.Time
}

// sortOut puts each pod where it counts, and deletes those that can only be deleted.
func (p *pass) sortOut(pods []Pod) {
	for _, pod := range pods {
		switch pod.State {
		case Warming:
			p.counts.Warming++
			p.sortOutWarming(pod)
		case Idle:
			p.counts.Idle++
			p.sortOutIdle(pod)
		case Claimed:
			p.counts.Claimed++
			if !pod.Deadline.IsZero() && p.due(pod.Deadline.Add(deadlineKept)) {
				p.delete(pod, DeleteDeadline)
			} else {
				p.claimed++
			}
		case Expired:
			p.counts.Expired++
			p.delete(pod, DeleteExpired)
		case Failed:
			p.counts.Failed++
			if pod.Trouble.Outlook == Lost {
				p.delete(pod, DeleteLost)
			} else {
				p.delete(pod, DeleteFailed)
			}
		case Finished:
			p.counts.Finished++
			if p.due(pod.Ended.Add(finishedKept)) {
				p.delete(pod, DeleteFinished)
			}
		case Ending:
			p.counts.Ending++
		}
	}
}

func (p *pass) sortOutWarming(pod Pod) {
	switch {
	case pod.Trouble.Outlook == Lost:
		p.lost = append(p.lost, pod)
	case pod.Trouble.Outlook == Over:
		p.delete(pod, DeleteFailed)
	case stuck(p.now, pod):
		p.delete(pod, DeleteStuck)
	case p.isOld(pod) && !p.want.Removed && !p.want.Drained && !p.want.Paused:
		// Nothing that is ready is lost with it, and what may be wrong with it may be mended in the present template.
		p.delete(pod, DeleteReplaced)
		p.leaving++
	default:
		if pod.Trouble.Outlook == Fine {
			p.look(pod.Moved.Add(stuckAfter))
			if p.due(pod.Moved.Add(slowAfter)) {
				pod.Trouble = Trouble{Waits, ReasonSlow, slowMessage(pod)}
			}
		}
		p.warming = append(p.warming, pod)
	}
}

func (p *pass) sortOutIdle(pod Pod) {
	if pod.IdleTime <= 0 {
		p.keepFresh(pod)
		return
	}
	end := pod.Ready.Add(pod.IdleTime)
	switch {
	case p.due(end.Add(overdueAfter)):
		p.delete(pod, DeleteOverdue)
	case p.due(end.Add(-lead(pod))):
		p.counts.Expiring++
		p.expiring = append(p.expiring, pod)
	default:
		p.keepFresh(pod)
	}
}

func (p *pass) keepFresh(pod Pod) {
	if p.isOld(pod) {
		p.counts.Outdated++
	}
	p.fresh = append(p.fresh, pod)
}

func stuck(now time.Time, pod Pod) bool {
	return pod.Trouble.Outlook == Fine && !now.Before(pod.Moved.Add(stuckAfter))
}

func slowMessage(pod Pod) string {
	return fmt.Sprintf("pod %s has a node since %s and its containers haven't started; see its events",
		pod.Name, pod.Moved.UTC().Format(time.RFC3339))
}

// lead is how long before its end an idle pod stops counting, so that its replacement is ready when it goes.
func lead(pod Pod) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pod.UID)) // never fails
	spread := min(maxJitter, pod.IdleTime/10)
	return min(maxLead, pod.IdleTime/4) + time.Duration(float64(spread)*float64(h.Sum64()%1000)/1000)
}

// target is how many idle pods are wanted. GitLab Runner counts so in [[runners.autoscaler.policy]]. It follows the jobs that
// run now and nothing else, so it falls as they end.
func (p *pass) target(former Former) int {
	if p.want.Removed || p.want.Drained {
		return 0
	}
	return p.want.Idle(p.claimed + former.Claimed)
}

// Idle is how many idle pods are wanted while so many are claimed.
func (w Want) Idle(claimed int) int {
	// A little less than the product, which for 100 × 1.1 is a hair above 110.
	factor := int(math.Ceil(float64(claimed)*w.ScaleFactor - 1e-9))
	if w.ScaleFactorLimit > 0 {
		factor = min(factor, w.ScaleFactorLimit)
	}
	return max(0, w.Count, factor)
}

// dropSurplus deletes pods beyond what is wanted: those that aren't ready at once, idle ones when their time is over. Those
// of another template are replace's business.
func (p *pass) dropSurplus() {
	if p.want.Paused {
		return
	}
	surplus := len(p.fresh) - p.outdated(p.fresh) + len(p.warming) - p.wanted
	for _, pod := range dispensable(p.warming, p.want.Template) {
		if surplus <= 0 {
			return
		}
		surplus--
		p.delete(pod, DeleteSurplus)
		p.warming = without(p.warming, pod)
	}
	for _, pod := range dispensable(p.fresh, p.want.Template) {
		if surplus <= 0 {
			return
		}
		if !p.isOld(pod) && p.due(pod.Ready.Add(p.want.IdleTime)) {
			surplus--
			p.delete(pod, DeleteSurplus)
			p.fresh = without(p.fresh, pod)
		}
	}
}

// dispensable orders pods by how little they would be missed: those that wait for a node, then old templates; of warming
// pods the youngest, which has furthest to go, of idle ones the oldest, which has least time left.
func dispensable(pods []Pod, template string) []Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b Pod) int {
		return cmp.Or(
			-cmp.Compare(a.Trouble.Outlook, b.Trouble.Outlook),
			-compareBool(a.Template != template, b.Template != template),
			-a.Moved.Compare(b.Moved),
			a.Ready.Compare(b.Ready),
		)
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func without(pods []Pod, pod Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Name == pod.Name && p.UID == pod.UID })
}

// creates is how many of the needed pods are made now; again is true where only the burst is in the way of more.
func (p *pass) creates(need, room int) (create int, again bool) {
	if need <= 0 || p.want.Paused {
		return 0, false
	}
	if pause := later(p.history.Until, p.want.NotBefore); p.now.Before(pause) {
		p.look(pause)
		return 0, false
	}
	if p.probing() || p.broken() {
		need = min(need, max(0, 1-len(p.warming)))
	}
	need = min(need, room)
	return min(need, p.want.Burst), need > p.want.Burst
}

// explain says why pods are missing, the most telling reason first.
func (p *pass) explain(limited bool) *Shortfall {
	if len(p.fresh)-p.outdated(p.fresh) >= p.wanted {
		return nil
	}
	if probe, ok := p.blocked(); ok && p.broken() {
		return &Shortfall{probe.Trouble.Reason, probe.Trouble.Message}
	}
	if p.probing() {
		return &Shortfall{p.history.Reason, p.history.Message}
	}
	if limited {
		ending := ""
		if n := p.ending(); n > 0 {
			ending = fmt.Sprintf(", %d of them ending", n)
		}
		return &Shortfall{ReasonLimit, fmt.Sprintf("the runner's limit is %d, and its jobs and pools hold that many pods%s", p.want.Limit, ending)}
	}
	waiting := slices.DeleteFunc(slices.Clone(p.warming), func(pod Pod) bool { return pod.Trouble.Outlook != Waits })
	if len(waiting) == 0 {
		return nil
	}
	first := slices.MinFunc(waiting, func(a, b Pod) int {
		return cmp.Or(a.Moved.Compare(b.Moved), strings.Compare(a.Name, b.Name))
	})
	return &Shortfall{first.Trouble.Reason, first.Trouble.Message}
}

func (p *pass) delete(pod Pod, reason Reason) {
	p.deletes = append(p.deletes, Deletion{Name: pod.Name, UID: pod.UID, Reason: reason})
}

// due says whether t has come; if not, the pool is looked at again then.
func (p *pass) due(t time.Time) bool {
	if !p.now.Before(t) {
		return true
	}
	p.look(t)
	return false
}

// look asks for another plan at t, if that is in the future.
func (p *pass) look(t time.Time) {
	if t.After(p.now) && (p.requeue.IsZero() || t.Before(p.requeue)) {
		p.requeue = t
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
