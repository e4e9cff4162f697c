package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"idlecount.dev/idlecount/config"
)

// notSeen is how long a pass waits for a namespace that the watches haven't shown yet.
const notSeen = 200 * time.Millisecond

// pass makes what is there what the configuration wants, and says when time alone will change that. watching ends with the
// term.
func (t *term) pass(ctx, watching context.Context, cfg *config.Config) (next time.Duration, err error) {
	t.adopt(cfg)
	if !t.noted {
		if err := t.home.recall(ctx); err != nil {
			return time.Until(t.home.failed.until), err
		}
		t.noted = true
	}
	configured := t.specs.namespaces()
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(configured, t.home.note.Namespaces()))))
	// Before the first object is made there, so that whoever leads next knows where to look.
	if err := t.home.write(ctx, all); err != nil {
		return time.Until(t.home.failed.until), err
	}
	next = lookAnyway
	var errs []error
	var left []string
	for _, namespace := range all {
		n, err := t.ensure(watching, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !n.synced(func(resource string) bool { return t.isDenied(namespace, resource) }) {
			next = min(next, notSeen)
			left = append(left, namespace)
			if denied := t.deniedIn(namespace, n); len(denied) > 0 {
				blind := fmt.Errorf("the manager may not see %s in namespace %s; `idlecount manifests` prints the roles",
					strings.Join(denied, ", "), namespace)
				t.keepNone(namespace, blind)
				errs = append(errs, blind)
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
	if err := t.home.write(ctx, left); err != nil {
		errs = append(errs, err)
		next = min(next, time.Until(t.home.failed.until))
	}
	return next, errors.Join(errs...)
}

// keepNone says why no capacity of a namespace can be kept.
func (t *term) keepNone(namespace string, why error) {
	for _, s := range t.specs.all {
		if s.key.namespace == namespace {
			t.unkept.Set(s.key.what(), why.Error())
		}
	}
}

// ensure watches a namespace.
func (t *term) ensure(watching context.Context, namespace string) (*namespaceCache, error) {
	if n := t.caches[namespace]; n != nil {
		return n, nil
	}
	n := newNamespaceCache(t.client, namespace)
	onError := func(w watched, err error) { t.watchError(namespace, w, err) }
	if err := n.run(watching, &t.running, t.look, t.watch.handler(), onError); err != nil {
		return nil, err
	}
	t.caches[namespace] = n
	return n, nil
}

// sync makes a pass over a namespace. something says whether anything of this manager is in it.
func (t *term) sync(ctx context.Context, namespace string, n *namespaceCache) (next time.Time, something bool, err error) {
	t.specs.measure(namespace, n)
	var errs []error
	look := func(at time.Time, err error) {
		errs, next = append(errs, err), first(next, at)
	}
	if t.ledgers[namespace] == nil {
		t.ledgers[namespace] = &ledger{}
	}
	s := scene{now: t.clock.Now(), passed: time.Now(), cache: n, ledger: t.ledgers[namespace], recall: t.memoryOf}
	for _, p := range s.gather(t.specs.byRunner(namespace)) {
		look(t.keep(ctx, p))
	}
	for _, anchor := range n.left(t.specs, t.home.String()) {
		something = true
		m := t.memoryOf(key{anchor.Namespace, anchor.Name})
		look(t.attempt(ctx, m, "remove", func() (time.Time, error) { return time.Time{}, t.remove(ctx, n, anchor) }))
	}
	return next, something, errors.Join(errs...)
}

func (t *term) memoryOf(k key) *memory {
	m := t.memory[k]
	if m == nil {
		m = &memory{}
		t.memory[k] = m
	}
	return m
}
