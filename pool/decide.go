package pool

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// scene is what decisions about the pools of a namespace are made from. Nothing is changed by making one.
type scene struct {
	now    time.Time
	lease  string // whose anchors are ours
	setup  *setup
	cache  *namespaceCache
	expect *expectations
	recall func(key) *memory // what earlier passes over a pool have learnt; never nil
	burst  int               // creates in one plan, at most
}

// decision is a plan, and what it was made from.
type decision struct {
	want   plan.Want
	seen   snapshot
	result plan.Result
	yields *memory // of the pool for whose sake a full quota makes pods go; nil where none does
}

// configured decides about a pool of the configuration.
func (s scene) configured(p *pool) decision {
	m := s.recall(p.key)
	formers := s.formers(p)
	tied := p.runner.Limit > 0 || len(formers) > 0
	d := decision{want: s.want(p), seen: gather(s.cache, s.expect, p.key, p.label, p, tied)}
	if d.want.Yield = m.mayYield(s.now); d.want.Yield {
		d.yields = m
	}
	have := plan.Have{Name: p.key.name, Pods: d.seen.pods, History: m.history}
	if tied {
		have.Others, have.Former = s.around(p, d.seen, formers)
	}
	d.result = plan.Plan(s.now, d.want, have)
	return d
}

// removed decides about a pool that the configuration doesn't have. anchor is nil where only pods are left of it.
func (s scene) removed(k key, anchor *corev1.ConfigMap) decision {
	runner := ""
	if anchor != nil {
		runner = anchor.Labels[factory.LabelRunner]
	}
	d := decision{want: plan.Want{Removed: true}, seen: gather(s.cache, s.expect, k, runner, nil, false)}
	if anchor != nil {
		if next := s.setup.successor(anchor); next != nil {
			d.want.Replaced = true
			d.want.Keep, d.yields = s.keep(next, anchor)
		}
	}
	d.result = plan.Plan(s.now, d.want, plan.Have{Name: k.name, Pods: d.seen.pods, History: s.recall(k).history})
	return d
}

// keep is how many idle pods a pool keeps that another one replaces, and for whose sake it keeps fewer.
func (s scene) keep(next *pool, anchor *corev1.ConfigMap) (int, *memory) {
	if drained(anchor) {
		return 0, nil
	}
	d := s.configured(next)
	c := d.result.Counts
	target, ready, stock := d.result.Target, c.Idle-c.Expiring-c.Outdated, c.Idle+c.Warming
	newer := true
	for _, former := range s.formers(next) {
		t := d.seen.others[former.Name]
		stock += t.stock()
		if newer = newer && former.Name != anchor.Name; newer {
			ready += t.idle
		}
	}
	var yields *memory
	if m := s.recall(next.key); m.mayYield(s.now) && c.Warming == 0 {
		yields, target = m, min(target, stock)
	}
	return plan.Keep(target, ready, d.result.Full || yields != nil), yields
}

// want is what the configuration and the anchor ask of a pool.
func (s scene) want(p *pool) plan.Want {
	policy := p.calendar.At(s.now)
	anchor, m := s.anchor(p.key), s.recall(p.key)
	return plan.Want{
		Count: policy.IdleCount, ScaleFactor: policy.ScaleFactor, ScaleFactorLimit: policy.ScaleFactorLimit,
		IdleTime: policy.IdleTime, Template: current, Limit: p.runner.Limit, Burst: s.burst,
		NotBefore: m.notBefore(), Paused: paused(anchor), Drained: drained(anchor),
	}
}

// around counts the runner's other pools: what the limit has to be shared with, and what this pool replaces.
func (s scene) around(p *pool, seen snapshot, formers []*corev1.ConfigMap) (plan.Others, plan.Former) {
	var others plan.Others
	for _, t := range seen.others {
		others.Live += t.stock() + t.claimed
		others.Ending += t.ending
	}
	former := formerOf(seen, formers)
	if p.runner.Limit > 0 {
		for _, k := range s.setup.ofRunner[p.owner()] {
			if k != p.key {
				q := s.setup.pools[k]
				others.Pools = append(others.Pools, s.demand(q, seen.others[k.name], formerOf(seen, s.formers(q))))
			}
		}
	}
	return others, former
}

func formerOf(seen snapshot, formers []*corev1.ConfigMap) plan.Former {
	var f plan.Former
	for _, anchor := range formers {
		t := seen.others[anchor.Name]
		f.Stock += t.stock()
		f.Claimed += t.claimed
	}
	return f
}

// demand is what a pool asks of its runner's limit. One that can't make pods now keeps what it has, and may try with one.
// What it replaces makes place for it, so that counts as its own.
func (s scene) demand(q *pool, t tally, former plan.Former) plan.Demand {
	want := s.want(q)
	d := plan.Demand{Name: q.key.name, Stock: t.stock() + former.Stock, Want: want.Idle(t.claimed + former.Claimed)}
	switch {
	case want.Drained:
		d.Want = 0
	case want.Paused:
		d.Want = d.Stock
	case s.recall(q.key).stuck:
		d.Want = min(d.Want, max(d.Stock, 1))
	}
	return d
}

// formers are the anchors of the pools that a configured one replaces, the newest first: they are of the same runner and
// image, and the configuration doesn't have them any more.
func (s scene) formers(p *pool) []*corev1.ConfigMap {
	var found []*corev1.ConfigMap
	for _, anchor := range s.cache.anchorsOf(p.label) {
		if s.setup.successor(anchor) != p {
			continue
		}
		if before, err := status.Of(anchor); err == nil && before.Lease == s.lease {
			found = append(found, anchor)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.ConfigMap) int {
		if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
			return order
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return found
}

// anchor is a pool's anchor as the watch shows it, or as this manager made it.
func (s scene) anchor(k key) *corev1.ConfigMap {
	if anchor := s.cache.anchor(k); anchor != nil {
		return anchor
	}
	return s.recall(k).anchor
}

func paused(anchor *corev1.ConfigMap) bool {
	return anchor != nil && anchor.Annotations[factory.AnnotationPaused] == "true"
}

func drained(anchor *corev1.ConfigMap) bool {
	return anchor != nil && anchor.Annotations[factory.AnnotationDrained] == "true"
}
