package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"idlecount.dev/idlecount/internal/quota"
)

// Claim is what a capacity would have of the quotas of its namespace.
type Claim struct {
	Name     string
	Runner   string      // whose jobs it is for: its capacities share one headroom
	Want     int         // pause pods
	Surplus  int         // and so many more, which stay for a while where the quota has room
	There    int         // pause pods that the quotas count by now
	Pause    *corev1.Pod // one of them
	Job      *corev1.Pod // one job's, for Headroom of which room is left
	Headroom int
}

// budget is what a quota leaves of one resource for all claims, and what a pause pod of each takes of it.
type budget struct {
	left int64
	cost []int64
}

// QuotaShares is how many pause pods each claim may have of what the quotas of the namespace leave, by name, with room left
// for jobs wherever a quota counts these too. Where there is too little for all they get one each in turn, and what is
// surplus comes last. A claim that isn't named has room for all that it wants, and more.
func QuotaShares(quotas []*corev1.ResourceQuota, claims []Claim) map[string]int {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(a.Name, b.Name) })
	tight := slices.DeleteFunc(budgets(quotas, claims), func(b budget) bool {
		asked := int64(0)
		for i, c := range claims {
			asked += int64(c.Want+c.Surplus) * b.cost[i]
		}
		return asked <= b.left
	})
	given := make([]int, len(claims))
	var bounded []int
	for i := range claims {
		if slices.ContainsFunc(tight, func(b budget) bool { return b.cost[i] > 0 }) {
			bounded = append(bounded, i)
		}
	}
	deal(tight, bounded, given, func(i int) int { return claims[i].Want })
	deal(tight, bounded, given, func(i int) int { return claims[i].Want + claims[i].Surplus })
	shares := make(map[string]int, len(bounded))
	for _, i := range bounded {
		shares[claims[i].Name] = given[i]
	}
	return shares
}

// deal gives one pod to each in turn, until it has what it asks for or nothing is left for it.
func deal(budgets []budget, claims []int, given []int, ask func(i int) int) {
	for rest := slices.Clone(claims); len(rest) > 0; {
		rest = slices.DeleteFunc(rest, func(i int) bool {
			if given[i] >= ask(i) || slices.ContainsFunc(budgets, func(b budget) bool { return b.cost[i] > max(0, b.left) }) {
				return true
			}
			given[i]++
			for j := range budgets {
				budgets[j].left -= budgets[j].cost[i]
			}
			return false
		})
	}
}

func budgets(quotas []*corev1.ResourceQuota, claims []Claim) []budget {
	var all []budget
	for _, q := range quotas {
		for name, hard := range q.Status.Hard {
			used := q.Status.Used[name]
			b := budget{left: amount(hard, name) - amount(used, name), cost: make([]int64, len(claims))}
			kept := map[string]int64{} // for jobs, by runner
			counts := false
			for i, c := range claims {
				if !quota.Applies(q, c.Pause) {
					continue
				}
				if b.cost[i] = amount(quota.Usage(c.Pause, name), name); b.cost[i] == 0 {
					continue
				}
				counts = true
				b.left += int64(c.There) * b.cost[i]
				if quota.Applies(q, c.Job) {
					kept[c.Runner] = max(kept[c.Runner], int64(c.Headroom)*amount(quota.Usage(c.Job, name), name))
				}
			}
			for _, room := range kept {
				b.left -= room
			}
			if counts {
				all = append(all, b)
			}
		}
	}
	return all
}

// amount is a quantity in whole numbers: of CPU thousandths, of all else units.
func amount(q resource.Quantity, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU:
		return q.MilliValue()
	default:
		return q.Value()
	}
}
