package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// memory is what the worker remembers of a pool in a term. It is only there to be patient, or brief.
type memory struct {
	history  plan.History
	refused  refusals
	template string // that the two were learnt with
	stuck    bool   // the pool can't make the pods that it wants, for another reason than its runner's limit

	createdAt time.Time // when a pod was last created
	yieldedAt time.Time // when pods last made place for this pool's below a quota

	anchor      *corev1.ConfigMap // as this manager made it, until the watch shows it
	anchorUntil time.Time         // when to give up on the watch
	written     string            // the status on its way to the watch; "" = none
	messageAt   time.Time         // when the shortfall's message last changed
	contest     leases.Contest    // with other managers, about the anchor
	anchorless  bool              // the anchor was refused; refused says why
	stock       map[string]bool   // UIDs of the pods that could be claimed after the last pass
	robbedAt    time.Time         // when somebody else deleted such a pod
	giveWay     time.Time         // until when the place of that pod is left to whoever needs it
	complaint   string            // the last error that was logged
}

const (
	// anchorFor bounds how long the watch is waited for to show an anchor.
	anchorFor = time.Minute
	// yieldAgain is when more place is made below a quota though what was made hasn't been used.
	yieldAgain = 2 * time.Minute
)

func (c *controller) memoryOf(k key) *memory {
	m := c.memory[k]
	if m == nil {
		m = &memory{}
		c.memory[k] = m
	}
	return m
}

// forgetAfterChange drops what was learnt of failures with another template: what was wrong may be mended.
func (m *memory) forgetAfterChange(template string) {
	if m.template != "" && m.template != template {
		m.history, m.refused = plan.History{}, refusals{}
	}
	m.template = template
}

// notBefore is when pods may be created next.
func (m *memory) notBefore() time.Time {
	if m.giveWay.After(m.refused.until) {
		return m.giveWay
	}
	return m.refused.until
}

// mayYield says whether a quota refuses this pool's pods, and the place that was made for some has been used.
func (m *memory) mayYield(now time.Time) bool {
	if m.refused.shortfall == nil || m.refused.shortfall.Reason != string(status.Quota) {
		return false
	}
	return m.yieldedAt.IsZero() || m.createdAt.After(m.yieldedAt) || !now.Before(m.yieldedAt.Add(yieldAgain))
}

// yield notes that place is made for this pool's pods, so the next try is due soon.
func (m *memory) yield(now time.Time) {
	m.yieldedAt = now
	m.refused.inARow, m.refused.until = 0, now.Add(firstRefusal)
}

// keepAnchor remembers an anchor that this manager has made until the watch shows it.
func (c *controller) keepAnchor(m *memory, anchor *corev1.ConfigMap) {
	m.anchor, m.anchorUntil = anchor, c.clock.Now().Add(anchorFor)
}
