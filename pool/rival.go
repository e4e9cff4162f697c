package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// reasonTaken is the reason of the shortfall of a pool that the managers of another lease have. Only metrics have it: the
// status in the anchor is theirs.
const reasonTaken = "Taken"

const (
	// rivalEvery is how often the lease is read that has a pool of this manager's, rivalSoon while it isn't known yet whether
	// it is held.
	rivalEvery = 15 * time.Second
	rivalSoon  = 2 * time.Second
	// quietFor is how long a pool has to lie idle before it is taken back from a lease that can't be read; doubled each time.
	quietFor   = 2 * time.Minute
	maxTakings = 5 // doublings, at most
)

// rival is what is known of another lease, whose managers have pools of this one's configuration. The zero value is that
// of one that was never read.
type rival struct {
	looked time.Time         // when it was last read
	record string            // who holds it and when that was renewed, as last read
	since  time.Time         // when record was first read
	state  status.LeaseState // "" while it isn't known
}

// after is r once the lease was read at now. Like leader election it goes by what changes and not by the times in the lease:
// the clocks of two machines may differ.
func (r rival) after(now time.Time, name string, lease *coordinationv1.Lease) rival {
	m := status.ManagerOf(name, lease, now)
	if m.State == status.Absent || m.Holder == "" || m.Renewed == nil {
		return rival{looked: now, state: cmp.Or(m.State, status.Lapsed)}
	}
	next := rival{looked: now, record: m.Holder + " " + m.Renewed.String(), since: now, state: status.Held}
	switch {
	case next.record == r.record:
		next.since, next.state = r.since, r.state
		lasts := time.Duration(0)
		if d := lease.Spec.LeaseDurationSeconds; d != nil {
			lasts = time.Duration(*d) * time.Second
		}
		if now.Sub(r.since) > lasts {
			next.state = status.Lapsed
		}
	case r.record == "" && m.State != status.Held:
		next.state = "" // it may have ended, or have another clock
	}
	return next
}

// again is when the lease is to be read next.
func (r rival) again() time.Time {
	if r.state == "" {
		return r.looked.Add(rivalSoon)
	}
	return r.looked.Add(rivalEvery)
}

// takes says whether a pool may be taken from the managers of a lease: where nobody holds it. Where that can't be found out
// a manager that begins takes it, so that a pool isn't lost with its managers' namespace; one that has had the pool in this
// term takes it back only when it has lain idle for a while.
func (r rival) takes(owned bool, quiet time.Duration, takings int) bool {
	switch r.state {
	case status.Lapsed, status.Absent:
		return true
	case status.Unknown:
		return !owned || quiet >= quietFor<<min(takings, maxTakings)
	default:
		return false
	}
}

// rivalOf reads a lease, unless that was done a moment ago.
func (c *controller) rivalOf(ctx context.Context, lease string) (rival, error) {
	r, now := c.rivals[lease], c.clock.Now()
	if !r.looked.IsZero() && now.Before(r.again()) {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(lease, "/")
	if name == "" {
		return rival{looked: now, state: status.Absent}, nil // not written by a manager
	}
	found, err := c.client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		r = r.after(now, lease, found)
	case apierrors.IsNotFound(err):
		r = rival{looked: now, state: status.Absent}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		r = rival{looked: now, state: status.Unknown}
	default:
		return r, fmt.Errorf("read the lease %s, whose managers have the pool: %w", lease, err)
	}
	c.rivals[lease] = r
	return r, nil
}

// contest decides about a pool whose anchor names another lease: it is taken over, or left alone.
func (c *controller) contest(ctx context.Context, p *pass) error {
	if p.now.Before(p.memory.takenUntil) {
		return nil // written, and not shown by the watch yet
	}
	r, err := c.rivalOf(ctx, p.before.Lease)
	if err != nil {
		return err
	}
	if r.takes(p.memory.owned, p.memory.quiet(p), p.memory.takings) {
		return c.takeOver(ctx, p)
	}
	if r.state != "" {
		c.leaveToRival(p)
	}
	c.queue.AddAfter(p.key, r.again().Sub(p.now))
	return nil
}

// takeOver puts this manager's lease into the anchor of a pool that other managers had. It acts on the pool only when they
// have seen that.
func (c *controller) takeOver(ctx context.Context, p *pass) error {
	c.logger(p.key, p.image).Warn("the pool is taken over from another manager", "lease", p.before.Lease)
	taken := p.before
	taken.Lease = c.home.lease
	if err := c.writeStatus(ctx, p.anchor, taken.Encode()); err != nil {
		return err
	}
	if p.memory.owned {
		p.memory.takings++
	}
	p.memory.takenUntil = p.now.Add(takeOverPause)
	p.memory.quietSince = time.Time{}
	return nil
}

// leaveToRival says, wherever somebody may look, that others have the pool.
func (c *controller) leaveToRival(p *pass) {
	text := fmt.Sprintf("the managers of lease %s have the pool; only one installation may have the runner %s: stop the other one, or take the runner out of its configuration",
		p.before.Lease, p.pool.runner)
	c.unkept.set(p.key, text)
	c.metrics.hide(p.key.name)
	c.metrics.shortfall.WithLabelValues(p.series().with(reasonTaken)...).Set(1)
	if p.memory.rival == p.before.Lease {
		return
	}
	p.memory.rival = p.before.Lease
	c.logger(p.key, p.image).Error("the pool is left to another manager", "lease", p.before.Lease, "message", text)
	c.events.Event(p.anchor, corev1.EventTypeWarning, eventTaken, fmt.Sprintf(
		"the managers of lease %s and those of lease %s both have this pool in their configuration; it is left to the latter", p.lease, p.before.Lease))
}

// quiet is for how long nothing has been done about a pool of other managers though something was due: pods are missing that
// they want, or another policy should be in force, and the anchor stays as it is.
func (m *memory) quiet(p *pass) time.Duration {
	stock := 0
	for _, pod := range p.cache.podsBy(byPool, p.key.name) {
		if s := stateOf(pod, false); s == plan.Idle || s == plan.Warming {
			stock++
		}
	}
	due := stock < p.before.Want || p.before.NextChange != nil && p.now.After(*p.before.NextChange)
	if !due || paused(p.anchor) || m.quietAt != p.anchor.ResourceVersion {
		m.quietAt, m.quietSince = p.anchor.ResourceVersion, time.Time{}
	}
	if due && m.quietSince.IsZero() {
		m.quietSince = p.now
	}
	if m.quietSince.IsZero() {
		return 0
	}
	return p.now.Sub(m.quietSince)
}

// unkept are the pools of the configuration that this manager can't keep at all, and why. The worker knows them, /readyz
// tells them.
type unkept struct {
	mu  sync.Mutex
	why map[key]string
}

func newUnkept() *unkept { return &unkept{why: map[key]string{}} }

func (u *unkept) set(k key, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.why[k] = why
}

func (u *unkept) drop(k key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.why, k)
}

// clear forgets all of them: the term is over.
func (u *unkept) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.why)
}

// reasons are a line for each.
func (u *unkept) reasons() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	lines := make([]string, 0, len(u.why))
	for k, why := range u.why {
		lines = append(lines, fmt.Sprintf("pool %s isn't kept: %s", k, why))
	}
	slices.Sort(lines)
	return lines
}
