package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// pass is what one pass over a pool works with; it is thrown away after it.
type pass struct {
	key    key
	pool   *pool             // nil where the pool isn't configured
	anchor *corev1.ConfigMap // nil where only pods are left of a pool
	cache  *namespaceCache
	memory *memory
	now    time.Time
	image  string
	policy cron.Decision
	before status.Status // as the anchor has it
	lease  string        // of this manager
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
	s := gather(n, c.expect, k, p.runner(), p.pool)
	r := plan.Plan(p.now, p.want(), withHistory(s.have, p.memory.history))
	if r.History.Failures > p.memory.history.Failures {
		c.announceFailure(p, r.History)
	}
	p.memory.history = r.History

	// Deletes first: what goes makes room for what comes.
	err = c.deletePods(ctx, p, s, r.Delete)
	if r.Create > 0 {
		c.create(ctx, p, r.Create)
	}
	short := p.shortfall(r)
	if p.anchor != nil {
		c.metrics.show(k.name, p.image, r, short)
	}
	if err != nil {
		c.access.recheck() // if that is why; the error says so too
		return fmt.Errorf("delete pods: %w", err)
	}
	if err := c.settle(ctx, p, r, short); err != nil {
		return err
	}
	c.lookAgain(p, s, r)
	return nil
}

// begin finds out what is to be done about a pool; nil where nothing is.
func (c *controller) begin(ctx context.Context, k key, n *namespaceCache) (*pass, error) {
	p := &pass{key: k, pool: c.setup.Load().pools[k], cache: n, memory: c.memoryOf(k), now: c.clock.Now(), lease: c.home.lease, broken: c.configs.trouble()}
	p.anchor = c.anchorOf(p)
	if p.pool == nil {
		return c.beginRemoved(p), nil
	}
	p.image = p.pool.image
	p.memory.forgetAfterChange(p.pool.template(0))
	p.policy = p.pool.schedule.At(p.now)
	if p.anchor == nil {
		return c.beginNew(ctx, p)
	}
	before, err := status.Of(p.anchor)
	if err != nil {
		c.logger(k, p.image).Warn("the pool's status can't be read and is written anew", "error", err)
	}
	p.before = before
	switch {
	case before.Lease == c.home.lease:
		p.memory.owned = true
	case before.Lease == "":
		// Written by nobody, or broken by somebody: it is written anew.
	case p.memory.owned:
		// The manager that started last has the pool; to take it back would begin a quarrel.
		return nil, fmt.Errorf("the pool was taken over by the managers of lease %s; only one configuration may have the runner %s",
			before.Lease, p.pool.runner)
	default:
		return nil, c.takeOver(ctx, p)
	}
	if p.now.Before(p.memory.takenUntil) {
		c.queue.AddAfter(k, p.memory.takenUntil.Sub(p.now))
		return nil, nil //nolint:nilnil // the other manager may need a moment to see it
	}
	return p, nil
}

// forgetAfterChange drops what was learnt of failures with another template: what was wrong may be mended.
func (m *memory) forgetAfterChange(template string) {
	if m.template != "" && m.template != template {
		m.history, m.refused = plan.History{}, refusals{}
	}
	m.template = template
}

// takeOver puts this manager's lease into the anchor of a pool that other managers had. It acts on the pool only when they
// have seen that.
func (c *controller) takeOver(ctx context.Context, p *pass) error {
	if p.now.Before(p.memory.takenUntil) {
		return nil // written, and not shown by the watch yet
	}
	c.logger(p.key, p.image).Warn("the pool is taken over from another manager", "lease", p.before.Lease)
	taken := p.before
	taken.Lease = c.home.lease
	if err := c.writeStatus(ctx, p.anchor, taken.Encode()); err != nil {
		return err
	}
	p.memory.takenUntil = p.now.Add(takeOverPause)
	return nil
}

// beginNew makes the anchor of a pool that has none; nil where the API server refuses that.
func (c *controller) beginNew(ctx context.Context, p *pass) (*pass, error) {
	if p.now.Before(p.memory.refused.until) {
		c.queue.AddAfter(p.key, p.memory.refused.until.Sub(p.now))
		return nil, nil //nolint:nilnil // nothing is to be done, and that is no error
	}
	p.before = p.status(plan.Result{Wanted: p.policy.IdleCount}, nil, status.Status{})
	anchor, err := c.createAnchor(ctx, p.pool, p.before)
	if err != nil {
		c.refuse(ctx, p, err, grant{"", "configmaps", "create", p.key.namespace})
		c.queue.AddAfter(p.key, p.memory.refused.until.Sub(p.now))
		return nil, nil //nolint:nilnil // refuse has seen to it
	}
	c.keepAnchor(p.memory, anchor)
	p.anchor = anchor
	return p, nil
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
		if c.setup.Load().runners[pod.Labels[factory.LabelRunner]] {
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

// labels are the pool and image as metrics have them.
func (p *pass) labels() []string {
	if p.anchor == nil {
		return []string{noPool, otherImage}
	}
	return []string{p.key.name, p.image}
}

func (p *pass) runner() string {
	switch {
	case p.pool != nil:
		return factory.RunnerLabel(p.pool.runner)
	case p.anchor != nil:
		return p.anchor.Labels[factory.LabelRunner]
	default:
		return ""
	}
}

func (p *pass) want() plan.Want {
	if p.pool == nil {
		return plan.Want{Removed: true}
	}
	return plan.Want{
		Count: p.policy.IdleCount, ScaleFactor: p.policy.ScaleFactor, ScaleFactorLimit: p.policy.ScaleFactorLimit,
		IdleTime: p.policy.IdleTime, Template: current, Limit: p.pool.runner.Limit, Burst: burst,
		NotBefore: p.memory.refused.until, Paused: p.anchor.Annotations[factory.AnnotationPaused] == "true",
	}
}

func withHistory(have plan.Have, h plan.History) plan.Have {
	have.History = h
	return have
}

// create makes pods; a refusal is kept for the next passes.
func (c *controller) create(ctx context.Context, p *pass, n int) {
	created, err := c.createPods(ctx, p, n, &c.namespaces[p.key.namespace].window)
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
	if ctx.Err() != nil {
		return // it is us who gave up
	}
	why := refusalOf(ctx, err, g, c.lacks)
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
	if p.memory.refused.shortfall != nil && r.Counts.Idle-r.Counts.Expiring < r.Wanted {
		return p.memory.refused.shortfall
	}
	return r.Shortfall
}

// lookAgain asks for the next pass, where time alone will change something.
func (c *controller) lookAgain(p *pass, s snapshot, r plan.Result) {
	if r.Again {
		c.queue.Add(p.key)
	}
	next := earliest(p.now.Add(lookAnyway), earliest(r.RequeueAt, s.expires))
	if p.pool != nil {
		next = earliest(next, p.pool.nextChange(p.now))
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
