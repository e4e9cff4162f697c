package pool

import (
	"time"

	"idlecount.dev/idlecount/pool/plan"
)

const (
	// giveWayFor is how long the place of a pod that somebody has deleted is left to them below a quota. A driver whose job's
	// pod the quota refuses deletes an idle one and tries again within a second or two.
	giveWayFor = 5 * time.Second
	// quotaFresh is how long a quota that has refused a pod is believed to be tight.
	quotaFresh = 10 * time.Minute
)

// givesWay says whether the pool leaves the place of a deleted pod to somebody else from now on, or for longer than before.
func (c *controller) givesWay(p *pass, seen snapshot) bool {
	term := c.namespaces[p.key.namespace]
	if term == nil || p.pool == nil {
		return false
	}
	if p.memory.robbed(seen) {
		p.memory.robbedAt = p.now
	}
	until := giveWay(p.now, p.memory.robbedAt, term.quotaAt)
	longer := until.After(p.memory.giveWay)
	p.memory.giveWay = until
	return longer
}

// giveWay is until when a pool that lost a pod to somebody at robbed isn't refilled, where a quota last refused a pod at
// quota; both zero = never. Without a tight quota there is nothing to leave to anybody.
func giveWay(now, robbed, quota time.Time) time.Time {
	if robbed.IsZero() || quota.IsZero() || now.After(quota.Add(quotaFresh)) {
		return time.Time{}
	}
	return robbed.Add(giveWayFor)
}

// robbed says whether pods that could be claimed after the last pass are gone or ending by now. Those that this manager
// deletes, and those that end by themselves, are not among them.
func (m *memory) robbed(seen snapshot) bool {
	there := make(map[string]bool, len(seen.pods))
	for _, pod := range seen.pods {
		there[pod.UID] = pod.State != plan.Ending
	}
	for uid := range m.stock {
		if !there[uid] {
			return true
		}
	}
	return false
}

// remember notes which pods are left to be claimed after a pass.
func (m *memory) remember(seen snapshot, deletions []plan.Deletion) {
	m.stock = map[string]bool{}
	for _, pod := range seen.pods {
		if pod.UID != "" && (pod.State == plan.Idle || pod.State == plan.Warming) {
			m.stock[pod.UID] = true
		}
	}
	for _, d := range deletions {
		delete(m.stock, d.UID)
	}
}
