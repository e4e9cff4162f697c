package plan

import "slices"

// Surge is how many pods there may be beyond those wanted while pods are replaced by others that a changed configuration
// makes: a quarter, as with a Deployment, but at least one.
func Surge(wanted int) int {
	if wanted <= 0 {
		return 0
	}
	return max(1, (wanted+3)/4)
}

// Keep is how many idle pods a pool that another one replaces keeps, so that as many are idle as are wanted until the
// other one's are Ready: wanted and ready are the other one's. Where there is no room for both, surge pods of the old one
// go first.
func Keep(wanted, ready int, noRoom bool) int {
	if noRoom {
		wanted -= Surge(wanted)
	}
	return max(0, wanted-ready)
}

// Former is what is left of pools that this one replaces: another shape for the same image of the same runner.
type Former struct {
	Stock   int // pods that nobody has claimed, and that aren't ending
	Claimed int
}

// outdated counts pods of another template.
func (p *pass) outdated(pods []Pod) int {
	n := 0
	for _, pod := range pods {
		if p.isOld(pod) {
			n++
		}
	}
	return n
}

func (p *pass) isOld(pod Pod) bool { return pod.Template != p.want.Template }

// replace deletes idle pods of another template as far as enough others are idle. A job can't tell them apart, so they
// only go once their replacements are Ready. Where limit or quota leaves no place for a replacement, a surge of them goes
// first.
func (p *pass) replace() {
	if p.want.Paused {
		return
	}
	target := min(p.wanted, p.share)
	spare := len(p.fresh) - target
	if len(p.warming) == 0 && (p.want.Yield || p.noPlace() && len(p.fresh) >= target) {
		spare = max(spare, Surge(target))
	}
	for _, pod := range dispensable(p.fresh, p.want.Template) {
		if spare <= 0 {
			return
		}
		if p.isOld(pod) {
			spare--
			p.delete(pod, DeleteReplaced)
			p.fresh = without(p.fresh, pod)
		}
	}
}

// noPlace says whether the limit is reached, and nothing is about to make place below it.
func (p *pass) noPlace() bool {
	return p.want.Limit > 0 && p.places() <= 0 && p.ending() == 0
}

// need is how many pods should be made, before what bounds creates: as many as are missing of the present template, as long
// as all together are no more than wanted and the surge. What is deleted while it is warming counts until it is seen to
// end: it may have become Ready, and then it stays for now.
func (p *pass) need(former Former) int {
	old := p.outdated(p.fresh) + p.leaving
	have := len(p.fresh) + len(p.warming) + p.leaving
	ceiling := p.wanted
	if old+former.Stock > 0 {
		ceiling += Surge(p.wanted)
	}
	return min(p.wanted-(have-old), ceiling-have-former.Stock)
}

// removeAll deletes all that is not claimed, but for keep idle pods: those that became Ready last, which have most time left.
func (p *pass) removeAll(keep int, reason Reason) {
	for _, list := range [][]Pod{p.warming, p.lost} {
		for _, pod := range list {
			p.delete(pod, reason)
		}
	}
	p.warming, p.lost = nil, nil
	idle := dispensable(slices.Concat(p.expiring, p.fresh), p.want.Template)
	kept := min(keep, len(idle))
	for _, pod := range idle[:len(idle)-kept] {
		p.delete(pod, reason)
	}
	p.fresh, p.expiring = idle[len(idle)-kept:], nil
}
