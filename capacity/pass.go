package capacity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	poolplan "idlecount.dev/idlecount/pool/plan"
)

// notSeen is how long a pass waits for a namespace that the watches haven't shown yet.
const notSeen = 200 * time.Millisecond

// pass makes what is there what the configuration wants, and says when time alone will change that. watching ends with the
// term.
func (t *term) pass(ctx, watching context.Context, cfg *config.Config) (next time.Duration, err error) {
	bad := t.adopt(cfg)
	if !t.noted {
		if err := t.home.recall(ctx); err != nil {
			return 0, err
		}
		t.noted = true
	}
	configured := t.specs.namespaces()
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(configured, t.home.note.Namespaces()))))
	// Before the first object is made there, so that whoever leads next knows where to look.
	if err := t.home.write(ctx, all); err != nil {
		return 0, errors.Join(bad, err)
	}
	next = lookAnyway
	errs := []error{bad}
	var left []string
	for _, namespace := range all {
		n, err := t.ensure(watching, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !n.synced() {
			next = min(next, notSeen)
			left = append(left, namespace)
			if denied := t.deniedIn(namespace); len(denied) > 0 {
				errs = append(errs, fmt.Errorf("the manager may not see %s in namespace %s; `idlecount manifests` prints the roles",
					strings.Join(denied, ", "), namespace))
				next = firstRetry
			}
			continue
		}
		at, something, err := t.sync(ctx, namespace, n)
		errs = append(errs, err)
		if !at.IsZero() {
			next = min(next, max(0, at.Sub(t.clock.Now())))
		}
		if something || err != nil || slices.Contains(configured, namespace) {
			left = append(left, namespace)
		}
	}
	errs = append(errs, t.home.write(ctx, left))
	return next, errors.Join(errs...)
}

// ensure watches a namespace.
func (t *term) ensure(watching context.Context, namespace string) (*namespaceCache, error) {
	if n := t.caches[namespace]; n != nil {
		return n, nil
	}
	n := newNamespaceCache(t.client, namespace)
	onError := func(resource string, err error) { t.watchError(namespace, resource, err) }
	if err := n.run(watching, &t.running, t.look, t.watch.handler(), onError); err != nil {
		return nil, err
	}
	t.caches[namespace] = n
	return n, nil
}

// sync makes a pass over a namespace. something says whether anything of this manager is in it.
func (t *term) sync(ctx context.Context, namespace string, n *namespaceCache) (next time.Time, something bool, err error) {
	var errs []error
	byRunner := map[string][]*spec{}
	wanted := map[string]bool{}
	for _, s := range t.specs.all {
		if s.key.namespace == namespace {
			label := factory.RunnerLabel(s.runner)
			byRunner[label] = append(byRunner[label], s)
			wanted[s.key.name] = true
		}
	}
	for _, label := range slices.Sorted(maps.Keys(byRunner)) {
		for _, p := range t.gather(n, label, byRunner[label]) {
			at, err := t.keep(ctx, n, p)
			errs = append(errs, err)
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	for _, obj := range n.anchors.GetStore().List() {
		anchor, ok := obj.(*corev1.ConfigMap)
		if !ok || wanted[anchor.Name] || !isCapacity(anchor) {
			continue
		}
		if s, err := status.Of(anchor); err == nil && s.Lease == t.home.String() {
			something = true
			errs = append(errs, t.remove(ctx, n, anchor))
		}
	}
	return next, something, errors.Join(errs...)
}

// part is one capacity in a pass: what is wanted of it, and what there is.
type part struct {
	*spec
	label         string
	now           time.Time
	anchor        *corev1.ConfigMap // nil where it has to be made
	before        status.Status
	want          plan.Want
	have          plan.Have
	held, pending int // pause pods that have a node, and that have none
	memory        *memory
}

// lowered is what quotas leave room for, as long as they say the same: used falls a moment after pods have gone, and to
// look again meanwhile would take them for somebody else's.
type lowered struct {
	seen string
	room int
}

// gather sees what there is of a runner's capacities, which share its limit.
func (t *term) gather(n *namespaceCache, label string, list []*spec) []*part {
	now := t.clock.Now()
	jobs := live(n.jobs, label)
	parts := make([]*part, 0, len(list))
	for _, s := range list {
		p := &part{spec: s, label: label, now: now, anchor: n.anchor(s.key.namespace, s.key.name), memory: t.memoryOf(s.key)}
		if p.anchor != nil {
			p.before, _ = status.Of(p.anchor) // what can't be read is written anew
		}
		d := s.calendar.At(now)
		p.want = plan.Want{Count: d.IdleCount, ScaleFactor: d.ScaleFactor, ScaleFactorLimit: d.ScaleFactorLimit, IdleTime: d.IdleTime}
		if p.anchor != nil {
			p.want.Drained = p.anchor.Annotations[factory.AnnotationDrained] == "true"
			p.want.Paused = p.anchor.Annotations[factory.AnnotationPaused] == "true"
		}
		p.have = plan.Have{Jobs: jobsOf(jobs, s, list), Room: plan.NoBound, QuotaFor: plan.NoBound}
		if d := n.deployment(s.key.namespace, s.key.name); d != nil {
			p.have.Held = int(*d.Spec.Replicas)
			p.have.Surplus, _ = time.Parse(time.RFC3339, d.Annotations[factory.AnnotationSurplusSince]) // zero where there is none
		}
		buffered := strategy(s.runner) == config.StrategyBuffer
		if buffered && p.before.Strategy == config.StrategyBuffer {
			p.have.Held = p.before.Hold
			if at := p.before.Surplus; at != nil {
				p.have.Surplus = *at
			}
		}
		for _, pod := range live(n.pauses, s.key.name) {
			if pod.Spec.NodeName != "" {
				p.held++
			} else {
				p.pending++
			}
		}
		if !buffered { // which has no pods that a quota could count
			p.have.QuotaFor = t.quotaRoom(n, p)
		}
		parts = append(parts, p)
	}
	shareLimit(list[0].runner, len(jobs), len(live(n.idle, label)), parts)
	return parts
}

// jobsOf counts the jobs for which a capacity is: those with its image, or those whose image has none of its own.
func jobsOf(jobs []*corev1.Pod, s *spec, all []*spec) int {
	count := 0
	for _, pod := range jobs {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "build" })
		own := ""
		for _, other := range all {
			if i >= 0 && other.capacity.Image != "" && config.SameImage(other.capacity.Image, pod.Spec.Containers[i].Image) {
				own = other.capacity.Image
			}
		}
		if own == s.capacity.Image {
			count++
		}
	}
	return count
}

// shareLimit says what the runner's limit leaves each of its capacities: idle pods and jobs come first. What GitLab's table
// has in max_pause_pods bounds them too.
func shareLimit(r config.Runner, jobs, idle int, parts []*part) {
	room := plan.NoBound
	if r.Limit > 0 {
		room = max(0, r.Limit-jobs-idle)
	}
	if most := r.Kubernetes.Autoscaler.MaxPausePods; most > 0 {
		room = min(room, most)
	}
	asked := 0
	var demands []poolplan.Demand
	for _, p := range parts {
		want := plan.Plan(p.now, p.want, p.have).Wanted
		demands = append(demands, poolplan.Demand{Name: p.key.name, Want: want})
		asked += max(want, p.have.Held)
	}
	if asked <= room {
		return
	}
	shares := poolplan.Share(room, demands)
	for _, p := range parts {
		p.have.Room = shares[p.key.name]
	}
}

// quotaRoom is what the quotas of the namespace leave.
func (t *term) quotaRoom(n *namespaceCache, p *part) int {
	var quotas []*corev1.ResourceQuota
	seen := p.hash + fmt.Sprint(p.runner.QuotaHeadroom())
	for _, key := range slices.Sorted(slices.Values(n.quotas.GetStore().ListKeys())) {
		if obj, exists, err := n.quotas.GetStore().GetByKey(key); err == nil && exists {
			if q, ok := obj.(*corev1.ResourceQuota); ok {
				quotas, seen = append(quotas, q), seen+" "+q.ResourceVersion
			}
		}
	}
	if m := &p.memory.quota; m.seen != seen {
		*m = lowered{seen, plan.QuotaRoom(quotas, p.pause, p.job, p.held+p.pending, p.runner.QuotaHeadroom())}
	}
	return p.memory.quota.room
}

func (t *term) memoryOf(k key) *memory {
	m := t.memory[k]
	if m == nil {
		m = &memory{}
		t.memory[k] = m
	}
	return m
}
