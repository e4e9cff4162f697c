package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/plan"
)

// contest decides about a pool whose anchor names another lease: it is taken over, or left alone.
func (c *controller) contest(ctx context.Context, p *pass) error {
	if _, waits := p.memory.contest.Waits(p.now); waits {
		return nil // written, and not shown by the watch yet
	}
	r, err := c.rivals.Of(ctx, p.before.Lease)
	if err != nil {
		return err
	}
	if p.memory.contest.Takes(r, p.quiet()) {
		return c.takeOver(ctx, p)
	}
	if r.State != "" {
		c.leaveToRival(p)
	}
	c.queue.AddAfter(p.key, r.Again().Sub(p.now))
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
	p.memory.contest.Took(p.now)
	return nil
}

// leaveToRival says, wherever somebody may look, that others have the pool.
func (c *controller) leaveToRival(p *pass) {
	text := leases.LeftTo("pool", p.before.Lease, p.pool.runner.String())
	c.unkept.Set(p.key.what(), text)
	c.metrics.hide(p.key.name)
	c.metrics.shortfall.WithLabelValues(p.series().with(leases.Taken)...).Set(1)
	if !p.memory.contest.Leaves(p.before.Lease) {
		return
	}
	c.logger(p.key, p.image).Error("the pool is left to another manager", "lease", p.before.Lease, "message", text)
	c.events.Event(p.anchor, corev1.EventTypeWarning, eventTaken, fmt.Sprintf(
		"the managers of lease %s and those of lease %s both have this pool in their configuration; it is left to the latter", p.lease, p.before.Lease))
}

// quiet is for how long nothing has been done about a pool of other managers though something was due: pods are missing that
// they want, or another policy should be in force, and the anchor stays as it is.
func (p *pass) quiet() time.Duration {
	stock := 0
	for _, pod := range p.cache.podsBy(byPool, p.key.name) {
		if s := stateOf(pod, false); s == plan.Idle || s == plan.Warming {
			stock++
		}
	}
	due := stock < p.before.Want || p.before.NextChange != nil && p.now.After(*p.before.NextChange)
	return p.memory.contest.Quiet(p.now, p.anchor.ResourceVersion, due && !paused(p.anchor))
}
