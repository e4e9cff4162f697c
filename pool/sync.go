package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// pass is what one pass over a pool works with; it is thrown away after it.
type pass struct {
	scene
	key    key
	pool   *pool             // nil where the pool isn't configured
	anchor *corev1.ConfigMap // nil where only pods are left of a pool
	memory *memory
	image  string
	policy cron.Decision
	before status.Status // as the anchor has it
	broken string        // why the configuration file as it is now isn't in force
}

// sync makes one pass over a pool: gather, plan, act. An error means that it has to be repeated soon; what the API server
// refuses to create is no error but a shortfall, with pauses of its own.
func (c *controller) sync(ctx context.Context, k key) error {
	n := c.caches.of(k.namespace)
	if n == nil || !n.synced() {
		return nil // begins comes back to it
	}
	if ready, err := c.upToDate(ctx, k.namespace, n); err != nil {
		return err
	} else if !ready {
		c.queue.AddAfter(k, horizonEvery)
		return nil
	}
	if k.name == "" {
		return c.leaveNamespace(ctx, k.namespace, n)
	}
	p, err := c.begin(ctx, k, n)
	if err != nil || p == nil {
		return err
	}
	d := p.decide()
	if c.givesWay(p, d.seen) {
		d = p.decide()
	}
	short, err := c.carryOut(ctx, p, d)
	if err != nil {
		return err
	}
	if err := c.settle(ctx, p, d.result, short); err != nil {
		return err
	}
	c.lookAgain(p, d)
	return nil
}

// carryOut makes the writes of a plan, and says why pods are missing. Deletes come first: what goes makes room for what comes.
func (c *controller) carryOut(ctx context.Context, p *pass, d decision) (*plan.Shortfall, error) {
	r := d.result
	p.memory.remember(d.seen, r.Delete)
	if r.History.Failures > p.memory.history.Failures {
		c.announceFailure(p, r.History)
	}
	p.memory.history = r.History
	err := c.deletePods(ctx, p, d.seen, r.Delete)
	if d.yields != nil && deletes(r, plan.DeleteReplaced) {
		d.yields.yield(p.now)
	}
	if r.Create > 0 {
		c.create(ctx, p, r.Create)
	}
	short := p.shortfall(r)
	if p.anchor != nil {
		c.metrics.show(p.series(), r, short)
		c.metrics.refilled(p.series(), p.now, r, paused(p.anchor) || drained(p.anchor))
	}
	if stuck := short != nil && short.Reason != plan.ReasonLimit; stuck != p.memory.stuck {
		p.memory.stuck = stuck
		c.enqueueTied(p.key.namespace, p.runner()) // what it asks of the limit is another thing now
	}
	if err != nil {
		c.access.recheck() // if that is why; the error says so too
		return nil, fmt.Errorf("delete pods: %w", err)
	}
	return short, nil
}

// decide makes the plan of the pass.
func (p *pass) decide() decision {
	if p.pool != nil {
		return p.configured(p.pool)
	}
	return p.removed(p.key, p.anchor)
}

func deletes(r plan.Result, reason plan.Reason) bool {
	return slices.ContainsFunc(r.Delete, func(d plan.Deletion) bool { return d.Reason == reason })
}

// scene is what passes over a namespace's pools decide by now.
func (c *controller) scene(n *namespaceCache) scene {
	return scene{
		now: c.clock.Now(), lease: c.home.lease, setup: c.setup.Load(), cache: n, expect: c.expect, burst: burst,
		recall: func(k key) *memory {
			if m := c.memory[k]; m != nil {
				return m
			}
			return &memory{}
		},
	}
}

// begin finds out what is to be done about a pool; nil where nothing is.
func (c *controller) begin(ctx context.Context, k key, n *namespaceCache) (*pass, error) {
	p := &pass{scene: c.scene(n), key: k, memory: c.memoryOf(k), broken: c.configs.trouble()}
	p.pool = p.setup.pools[k]
	if p.memory.refused.liftedBy(c.access.restoredAt()) {
		p.memory.refused = refusals{}
	}
	p.anchor = c.anchorOf(p)
	if p.pool == nil {
		c.unkept.Drop(k.what())
		return c.beginRemoved(p), nil
	}
	p.image = p.pool.image
	p.memory.forgetAfterChange(p.pool.template(0))
	p.policy = p.pool.calendar.At(p.now)
	if p.anchor == nil {
		return c.beginNew(ctx, p)
	}
	before, err := status.Of(p.anchor)
	if err != nil {
		c.logger(k, p.image).Warn("the pool's status can't be read and is written anew", "error", err)
	}
	p.before = before
	switch before.Lease {
	case c.home.lease:
		p.memory.contest.Owned()
	case "":
		// Written by nobody, or broken by somebody: it is written anew.
	default:
		return nil, c.contest(ctx, p)
	}
	if until, waits := p.memory.contest.Waits(p.now); waits {
		c.queue.AddAfter(k, until.Sub(p.now))
		return nil, nil //nolint:nilnil // the other manager may need a moment to see it
	}
	c.keeps(p)
	return p, nil
}

// keeps notes that this manager keeps the pool, and forgets why it couldn't.
func (c *controller) keeps(p *pass) {
	c.unkept.Drop(p.key.what())
	p.memory.contest.Settled()
	if p.memory.anchorless {
		p.memory.anchorless, p.memory.refused = false, refusals{}
	}
}

// beginNew makes the anchor of a pool that has none; nil where the API server refuses that.
func (c *controller) beginNew(ctx context.Context, p *pass) (*pass, error) {
	if p.now.Before(p.memory.refused.until) {
		c.queue.AddAfter(p.key, p.memory.refused.until.Sub(p.now))
		return nil, nil //nolint:nilnil // nothing is to be done, and that is no error
	}
	p.before = p.status(plan.Result{Wanted: p.policy.IdleCount}, nil, status.Status{})
	needs := grant{"", "configmaps", "create", p.key.namespace}
	anchor, err := c.createAnchor(ctx, p.pool, p.before, inherited(p.formers(p.pool)))
	if apierrors.IsAlreadyExists(err) {
		needs.verb = "patch"
		if anchor, err = c.adoptAnchor(ctx, p.pool); err == nil {
			c.keepAnchor(p.memory, anchor)
			c.queue.Add(p.key) // what it says is to be looked at first
			return nil, nil    //nolint:nilnil // the next pass does
		}
	}
	if err != nil {
		c.refuseAnchor(ctx, p, err, needs)
		return nil, nil //nolint:nilnil // that was seen to
	}
	c.keepAnchor(p.memory, anchor)
	p.anchor = anchor
	c.keeps(p)
	return p, nil
}

// refuseAnchor notes that a pool can't have an anchor. There is no status then to say so in, so the metrics and /readyz do.
func (c *controller) refuseAnchor(ctx context.Context, p *pass, err error, needs grant) {
	c.refuse(ctx, p, err, needs)
	c.queue.AddAfter(p.key, p.memory.refused.until.Sub(p.now))
	why := p.memory.refused.shortfall
	if why == nil {
		return // it is us who gave up
	}
	p.memory.anchorless = true
	c.metrics.show(p.series(), plan.Result{Wanted: p.policy.IdleCount}, why)
	c.unkept.Set(p.key.what(), why.Reason+": "+why.Message)
}

// beginRemoved finds out whether a pool that isn't configured is this manager's to remove.
func (c *controller) beginRemoved(p *pass) *pass {
	if p.anchor != nil {
		before, err := status.Of(p.anchor)
		if err != nil || before.Lease != c.home.lease {
			return nil // not ours
		}
		p.before, p.image = before, before.Image
		return p
	}
	// No anchor: pods of cold jobs whose shape no pool has, or idle ones whose anchor somebody deleted.
	for _, pod := range p.cache.podsBy(byPool, p.key.name) {
		if p.setup.runners[pod.Labels[factory.LabelRunner]] {
			p.image = otherImage
			return p
		}
	}
	c.metrics.hide(p.key.name)
	delete(c.memory, p.key)
	return nil
}

// anchorOf is a pool's anchor as the watch shows it, or as this manager knows it until the watch does.
func (c *controller) anchorOf(p *pass) *corev1.ConfigMap {
	m := p.memory
	if anchor := p.cache.anchor(p.key); anchor != nil {
		m.anchor = nil
		return anchor
	}
	if m.anchor != nil && !p.now.Before(m.anchorUntil) {
		m.anchor = nil
	}
	return m.anchor
}

func (p *pass) runner() string {
	switch {
	case p.pool != nil:
		return p.pool.label
	case p.anchor != nil:
		return p.anchor.Labels[factory.LabelRunner]
	default:
		return ""
	}
}

// create makes pods; a refusal is kept for the next passes.
func (c *controller) create(ctx context.Context, p *pass, n int) {
	created, err := c.createPods(ctx, p, n, &c.namespaces[p.key.namespace].window)
	if created > 0 {
		p.memory.createdAt = p.now
	}
	if created > 0 || err == nil {
		if was := p.memory.refused.shortfall; was != nil && was.Reason == string(status.Access) {
			c.access.recheck()
		}
		p.memory.refused = refusals{}
	}
	if err != nil {
		c.refuse(ctx, p, err, grant{"", "pods", "create", p.key.namespace})
	}
}

// refuse notes a refusal of the API server.
func (c *controller) refuse(ctx context.Context, p *pass, err error, g grant) {
	if ctx.Err() != nil || errors.Is(err, errLapsed) {
		return // it is us who gave up
	}
	why := refusalOf(ctx, err, g, c.lacks)
	if term := c.namespaces[p.key.namespace]; term != nil && why.Reason == string(status.Quota) {
		term.quotaAt = p.now
	}
	if p.memory.refused.shortfall == nil {
		c.logger(p.key, p.image).Warn("the API server refuses", "what", g.String(), "reason", why.Reason, "message", why.Message)
	}
	p.memory.refused = p.memory.refused.after(p.now, why)
}

// lacks says whether the manager lacks a permission; where that can't be found out it isn't held against it.
func (c *controller) lacks(ctx context.Context, g grant) bool {
	allowed, err := c.access.allowed(ctx, g)
	if err != nil || allowed {
		return false
	}
	c.access.recheck()
	return true
}

// shortfall is why pods are missing: what the API server refuses comes first, since nothing else could show then.
func (p *pass) shortfall(r plan.Result) *plan.Shortfall {
	if p.memory.refused.shortfall != nil && r.Counts.Idle-r.Counts.Expiring-r.Counts.Outdated < r.Wanted {
		return p.memory.refused.shortfall
	}
	return r.Shortfall
}

// lookAgain asks for the next pass, where time alone will change something.
func (c *controller) lookAgain(p *pass, d decision) {
	if d.result.Again {
		c.queue.Add(p.key)
	}
	next := earliest(p.now.Add(lookAnyway), earliest(d.result.RequeueAt, d.seen.expires))
	if p.pool != nil {
		next = earliest(next, p.pool.calendar.NextChange(p.now))
	}
	c.queue.AddAfter(p.key, next.Sub(c.clock.Now()))
}

// earliest is the earlier of two times that may be zero, which is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
