package capacity

import (
	"context"
	"time"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/leases"
)

// contest says when to look again at a capacity that isn't this manager's to keep now: other managers have it, or had it a
// moment ago. Zero where it may be kept.
func (t *term) contest(ctx context.Context, p *part) (time.Time, error) {
	c := &p.memory.contest
	ours := p.before.Lease == t.home.String()
	if ours {
		c.Owned()
	}
	if until, waits := c.Waits(p.now); waits {
		return until, nil // the other manager may need a moment to see it, and the watch to show it
	}
	if ours || p.before.Lease == "" { // new, or broken by somebody: it is written anew
		c.Settled()
		return time.Time{}, nil
	}
	r, err := t.rivals.Of(ctx, p.before.Lease)
	if err != nil {
		return time.Time{}, err
	}
	if c.Takes(r, c.Quiet(p.now, p.anchor.ResourceVersion, overdue(p))) {
		return t.takeOver(ctx, p)
	}
	if r.State != "" {
		t.leave(p)
	}
	return r.Again(), nil
}

// takeOver puts this manager's lease into the anchor of a capacity that other managers had. It acts on the capacity only when
// they have seen that.
func (t *term) takeOver(ctx context.Context, p *part) (time.Time, error) {
	t.log.Warn("the capacity is taken over from another manager", "capacity", p.key.name, "namespace", p.key.namespace, "lease", p.before.Lease)
	taken := p.before
	taken.Lease = t.home.String()
	if err := t.writeStatus(ctx, p, taken); err != nil {
		return time.Time{}, err
	}
	p.memory.contest.Took(p.now)
	until, _ := p.memory.contest.Waits(p.now)
	return until, nil
}

// leave says, wherever somebody may look, that others have the capacity.
func (t *term) leave(p *part) {
	text := leases.LeftTo("capacity", p.before.Lease, p.runner.String())
	t.unkept.Set(p.key.what(), text)
	t.metrics.taken(p)
	if p.memory.contest.Leaves(p.before.Lease) {
		t.log.Error("the capacity is left to another manager", "capacity", p.key.name, "namespace", p.key.namespace, "lease", p.before.Lease, "message", text)
	}
}

// overdue says whether the managers of a capacity leave something undone: it asks for another number than its status says, or
// its next policy should be in force.
func overdue(p *part) bool {
	if p.want.Paused {
		return false
	}
	if next := p.before.NextChange; next != nil && p.now.After(*next) {
		return true
	}
	return p.before.Strategy != config.StrategyBuffer && p.have.Held != p.before.Hold
}
