package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/internal/unkept"
)

// controller is one leader's term: it begins with nothing in memory and is thrown away when the term ends.
type controller struct {
	*writer // the writes, with the client, what is expected of them, the counters and the log

	configs *configs              // where another configuration comes from
	setup   atomic.Pointer[setup] // the one that passes go by
	caches  *caches
	queue   workqueue.TypedRateLimitingInterface[key]
	clock   clock.WithTicker
	home    *home        // the lease that anchors name, and the namespaces it has noted
	access  *access      // asked where the API server says "forbidden"
	unkept  *unkept.List // told of the pools that can't be kept at all
	memory  map[key]*memory
	rivals  leases.Rivals // other leases that have pools of this manager's
	// namespaces are what the worker knows of each namespace in this term.
	namespaces map[string]*namespaceTerm
}

const (
	// lookAnyway bounds the time between two passes over a pool: timers stand still while a machine sleeps.
	lookAnyway = 5 * time.Minute
	// firstRetry and maxRetry bound the pauses after passes that failed.
	firstRetry = 500 * time.Millisecond
	maxRetry   = time.Minute
)

func newController(o Options, configs *configs, caches *caches, h *home, a *access, u *unkept.List, m *metrics, events record.EventRecorder) *controller {
	c := &controller{
		writer:  &writer{client: o.Client, expect: newExpectations(o.Clock), holds: h.holds, metrics: m, log: o.Log, events: events},
		configs: configs, caches: caches, clock: o.Clock, home: h, access: a, unkept: u,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[key]{Clock: o.Clock},
		),
		memory: map[key]*memory{}, rivals: leases.Rivals{Client: o.Client, Clock: o.Clock}, namespaces: map[string]*namespaceTerm{},
	}
	c.setup.Store(configs.now())
	return c
}

// run works until stop ends, then finishes the pass it is in; the writes are made with ctx, which ends when the lease is lost.
func (c *controller) run(ctx, stop context.Context) error {
	old, err := c.home.recall(ctx, c.setup.Load().namespaces)
	if err != nil {
		return err
	}
	for _, namespace := range old {
		if err := c.caches.ensure(namespace); err != nil {
			return err
		}
	}
	over, end := context.WithCancel(ctx)
	defer end()
	defer c.unwatchAll()
	for namespace, n := range c.caches.all() {
		if err := c.enter(over, namespace, n); err != nil {
			return err
		}
	}
	c.configs.follow(func() { c.queue.Add(key{}) })
	defer c.configs.follow(nil)
	c.access.follow(func() { c.queue.Add(key{}) }) // a pass over each pool, at once
	defer c.access.follow(nil)
	c.queue.Add(key{}) // a change since the term's beginning
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	defer context.AfterFunc(stop, c.queue.ShutDown)()
	for c.next(over) {
	}
	for k := range c.memory {
		c.metrics.hide(k.name)
	}
	c.unkept.Clear()
	return nil
}

// adopt goes over to the configuration in force. Every pool of the one and the other gets a pass; one that is the same in
// both is found as it should be, so nothing happens to it.
func (c *controller) adopt(ctx context.Context) error {
	next := c.configs.now()
	for _, namespace := range next.namespaces {
		if err := c.caches.ensure(namespace); err != nil {
			return err
		}
		if err := c.enter(ctx, namespace, c.caches.of(namespace)); err != nil {
			return err
		}
	}
	// Before the first pod is made there, so that whoever leads next knows where to look.
	if err := c.home.add(ctx, next.namespaces); err != nil {
		return err
	}
	c.setup.Store(next)
	for namespace, n := range c.caches.all() {
		c.enqueueAll(namespace, n)
	}
	return nil
}

// begins asks for passes over all pools of a namespace once the namespace was seen: those of the configuration, and those
// that it has left, whose anchors and pods the watches have shown before passes could be made.
func (c *controller) begins(ctx context.Context, namespace string, n *namespaceCache) {
	if !cache.WaitForCacheSync(ctx.Done(), n.pods.HasSynced, n.anchors.HasSynced) {
		return
	}
	c.enqueueAll(namespace, n)
}

// enqueueAll asks for passes over all pools of a namespace, configured or not.
func (c *controller) enqueueAll(namespace string, n *namespaceCache) {
	for k := range c.setup.Load().pools {
		if k.namespace == namespace {
			c.queue.Add(k)
		}
	}
	for _, name := range slices.Concat(n.anchors.GetStore().ListKeys(), n.pods.GetIndexer().ListIndexFuncValues(byPool)) {
		c.queue.Add(key{namespace, strings.TrimPrefix(name, namespace+"/")})
	}
	c.queue.Add(key{namespace: namespace})
}

// next makes one pass; it returns false when the queue has shut down.
func (c *controller) next(ctx context.Context) bool {
	k, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(k)
	begin := c.clock.Now()
	var err error
	if k == (key{}) {
		err = c.adopt(ctx)
	} else {
		err = c.sync(ctx, k)
	}
	c.metrics.passed(c.clock.Since(begin))
	switch {
	case err == nil:
		c.queue.Forget(k)
		c.complain(k, "")
	case ctx.Err() != nil:
		// The lease is lost; the next leader goes on.
	default:
		c.metrics.errors.Inc()
		if apierrors.IsForbidden(err) {
			c.access.recheck()
		}
		c.complain(k, err.Error())
		c.queue.AddRateLimited(k)
	}
	return true
}

// complain logs an error of a pool once, and not each time that it is met again.
func (c *controller) complain(k key, text string) {
	m := c.memory[k]
	if m == nil && text == "" {
		return
	}
	if m = c.memoryOf(k); text == m.complaint {
		return
	}
	switch {
	case k == (key{}) && text != "":
		c.log.Error("another configuration can't be taken over yet; that is tried again", "error", text)
	case text != "":
		c.log.Error("a pass over the pool failed and will be repeated", "pool", k.name, "namespace", k.namespace, "error", text)
	default:
		c.log.Info("passes over the pool succeed again", "pool", k.name, "namespace", k.namespace)
	}
	m.complaint = text
}

// enter begins with a namespace, unless that was done: what its caches see is sent to the queue from now on.
func (c *controller) enter(ctx context.Context, namespace string, n *namespaceCache) error {
	if c.namespaces[namespace] != nil {
		return nil
	}
	term := &namespaceTerm{}
	follow := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow a watch in namespace %s: %w", namespace, err)
		}
		term.unwatch = append(term.unwatch, func() {
			if err := cache.ShutDownEventHandler(informer, registration); err != nil {
				c.log.Error("a watch can't be let go of", "namespace", namespace, "error", err)
			}
		})
		return nil
	}
	c.namespaces[namespace] = term
	if err := errors.Join(follow(n.pods, c.podHandler()), follow(n.anchors, c.anchorHandler())); err != nil {
		c.unwatch(namespace)
		return err
	}
	go c.begins(ctx, namespace, n)
	return nil
}

// unwatch ends what enter has begun.
func (c *controller) unwatch(namespace string) {
	if term := c.namespaces[namespace]; term != nil {
		for _, end := range term.unwatch {
			end()
		}
		delete(c.namespaces, namespace)
	}
}

func (c *controller) unwatchAll() {
	for namespace := range c.namespaces {
		c.unwatch(namespace)
	}
}

// leave lets go of a namespace in which nothing is left for this manager.
func (c *controller) leave(namespace string) {
	c.unwatch(namespace)
	c.caches.drop(namespace)
}

// logger is the log with what every line about a pool says.
func (c *controller) logger(k key, image string) *slog.Logger {
	return c.log.With("pool", k.name, "namespace", k.namespace, "image", image)
}
