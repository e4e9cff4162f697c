package plan

import (
	"cmp"
	"math"
	"slices"
)

// Demand is what one pool of a runner asks of the runner's limit.
type Demand struct {
	Name  string
	Want  int // idle pods wanted
	Stock int // pods that nobody has claimed, of it and of those that it replaces
}

// Share shares out room among the pools of a runner, by name. They get one each in turn until each has what it wants or
// nothing is left: a pool that wants little gets all of it, and none starves while there is one for each. What doesn't come
// out even goes to the first by name.
func Share(room int, demands []Demand) map[string]int {
	shares := make(map[string]int, len(demands))
	rest := slices.SortedFunc(slices.Values(demands), func(a, b Demand) int {
		return cmp.Or(cmp.Compare(a.Want, b.Want), cmp.Compare(a.Name, b.Name))
	})
	room = max(0, room)
	for len(rest) > 0 {
		even := room / len(rest)
		if d := rest[0]; d.Want <= even {
			shares[d.Name] = max(0, d.Want)
			room -= shares[d.Name]
			rest = rest[1:]
			continue
		}
		// All that are left want more than comes out even.
		slices.SortFunc(rest, func(a, b Demand) int { return cmp.Compare(a.Name, b.Name) })
		for i, d := range rest {
			shares[d.Name] = even
			if i < room-even*len(rest) {
				shares[d.Name]++
			}
		}
		return shares
	}
	return shares
}

// shareLimit finds this pool's share of the runner's limit, and what its other pools still lack of theirs. Jobs come first:
// only what they leave is shared.
func (p *pass) shareLimit(name string, former Former) {
	p.share = math.MaxInt
	if p.want.Limit <= 0 {
		return
	}
	stock := former.Stock
	for _, d := range p.others.Pools {
		stock += d.Stock
	}
	room := p.want.Limit - p.claimed - (p.others.Live - stock)
	own := Demand{Name: name, Want: p.wanted, Stock: p.unclaimed()}
	shares := Share(room, append(slices.Clone(p.others.Pools), own))
	p.share = shares[name]
	for _, d := range p.others.Pools {
		p.lacking += max(0, shares[d.Name]-d.Stock)
	}
}

// keepLimit deletes what exceeds the runner's limit, and what another pool of the runner lacks of its share while this one
// has more than its own. Pods that end already don't count, else each pass would take more.
func (p *pass) keepLimit() {
	if p.want.Limit <= 0 {
		return
	}
	over := p.live() + p.others.Live - p.want.Limit
	if !p.want.Paused {
		over += p.lacking
	}
	over = min(over, p.unclaimed()-p.share)
	for _, list := range []*[]Pod{&p.lost, &p.warming, &p.expiring, &p.fresh} {
		for _, pod := range dispensable(*list, p.want.Template) {
			if over <= 0 {
				return
			}
			over--
			p.delete(pod, DeleteLimit)
			*list = without(*list, pod)
		}
	}
}

// unclaimed are the pods of this pool that stay and that no job has.
func (p *pass) unclaimed() int {
	return len(p.fresh) + len(p.expiring) + len(p.warming) + len(p.lost)
}

// live are the pods of this pool that stay and count against the limit.
func (p *pass) live() int { return p.unclaimed() + p.claimed }

// room is how many more pods the runner's limit allows this pool. Pods that are ending still hold what they had. Those that
// expire soon, and those of another template, may be replaced beyond this pool's share, but not with what others lack of
// theirs.
func (p *pass) room() int {
	if p.want.Limit <= 0 {
		return math.MaxInt
	}
	own := p.share - (len(p.fresh) - p.outdated(p.fresh)) - len(p.warming)
	return max(0, min(p.places(), own, max(p.share-p.unclaimed(), p.places()-p.lacking)))
}

// places are how many more pods the limit allows at all.
func (p *pass) places() int {
	return p.want.Limit - p.live() - p.others.Live - p.ending()
}

func (p *pass) ending() int { return p.counts.Ending + p.others.Ending + len(p.deletes) }
