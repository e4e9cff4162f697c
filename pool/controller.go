package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/pool/plan"
)

// controller is one leader's term: it begins with nothing in memory and is thrown away when the term ends.
type controller struct {
	*writer // the writes, with the client, what is expected of them, the counters and the log

	pools  map[key]*pool
	caches *caches
	queue  workqueue.TypedRateLimitingInterface[key]
	clock  clock.WithTicker
	events record.EventRecorder
	home   *home   // what this manager is: its lease, its runners, the namespaces it has pools in
	access *access // asked where the API server says "forbidden"
	memory map[key]*memory
	// namespaces are what the worker knows of each namespace in this term.
	namespaces map[string]*namespaceTerm
}

// memory is what the worker remembers of a pool in a term. It is only there to be patient, or brief.
type memory struct {
	history plan.History
	refused refusals

	anchor      *corev1.ConfigMap // as this manager made it, until the watch shows it
	anchorUntil time.Time         // when to give up on the watch
	written     string            // the status on its way to the watch; "" = none
	messageAt   time.Time         // when the shortfall's message last changed
	owned       bool              // the watch has shown the anchor as ours in this term
	takenUntil  time.Time         // when to begin with a pool that was another manager's
	complaint   string            // the last error that was logged
}

const (
	// anchorFor bounds how long the watch is waited for to show an anchor.
	anchorFor = time.Minute
	// lookAnyway bounds the time between two passes over a pool: timers stand still while a machine sleeps.
	lookAnyway = 5 * time.Minute
	// takeOverPause is the time that a manager which loses a pool to another one has to notice.
	takeOverPause = time.Second
	// firstRetry and maxRetry bound the pauses after passes that failed.
	firstRetry = 500 * time.Millisecond
	maxRetry   = time.Minute
)

func newController(o Options, pools map[key]*pool, caches *caches, h *home, a *access, m *metrics, events record.EventRecorder) *controller {
	return &controller{
		writer: &writer{client: o.Client, expect: newExpectations(o.Clock), metrics: m, log: o.Log},
		pools:  pools, caches: caches, clock: o.Clock, events: events, home: h, access: a,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[key]{Clock: o.Clock},
		),
		memory: map[key]*memory{}, namespaces: map[string]*namespaceTerm{},
	}
}

// run works until stop ends, then finishes the pass it is in; the writes are made with ctx, which ends when the lease is lost.
func (c *controller) run(ctx, stop context.Context) error {
	old, err := c.home.recall(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range old {
		if err := c.caches.ensure(stop, namespace); err != nil {
			return err
		}
	}
	unwatch, err := c.watch()
	defer unwatch()
	if err != nil {
		return err
	}
	over, end := context.WithCancel(ctx)
	defer end()
	for namespace, n := range c.caches.all() {
		go c.begins(over, namespace, n)
	}
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	defer context.AfterFunc(stop, c.queue.ShutDown)()
	for c.next(ctx) {
	}
	for k := range c.memory {
		c.metrics.hide(k.name)
	}
	return nil
}

// begins asks for passes over all pools of a namespace once the namespace was seen: those of the configuration, and those
// that it has left, whose anchors and pods the watches have shown before passes could be made.
func (c *controller) begins(ctx context.Context, namespace string, n *namespaceCache) {
	if !cache.WaitForCacheSync(ctx.Done(), n.pods.HasSynced, n.anchors.HasSynced) {
		return
	}
	for k := range c.pools {
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
	err := c.sync(ctx, k)
	c.metrics.passed(c.clock.Since(begin))
	switch {
	case err == nil:
		c.queue.Forget(k)
		c.complain(k, "")
	case ctx.Err() != nil:
		// The lease is lost; the next leader goes on.
	default:
		c.metrics.errors.Inc()
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
	if text != "" {
		c.log.Error("a pass over the pool failed and will be repeated", "pool", k.name, "namespace", k.namespace, "error", text)
	} else {
		c.log.Info("passes over the pool succeed again", "pool", k.name, "namespace", k.namespace)
	}
	m.complaint = text
}

func (c *controller) memoryOf(k key) *memory {
	m := c.memory[k]
	if m == nil {
		m = &memory{}
		c.memory[k] = m
	}
	return m
}

// watch sends what the caches see to the queue; the function it returns ends that.
func (c *controller) watch() (unwatch func(), err error) {
	var ends []func()
	unwatch = func() {
		for _, end := range ends {
			end()
		}
	}
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow a watch: %w", err)
		}
		ends = append(ends, func() {
			if err := cache.ShutDownEventHandler(informer, registration); err != nil {
				c.log.Error("a watch can't be let go of", "error", err)
			}
		})
		return nil
	}
	for _, n := range c.caches.all() {
		if err := errors.Join(add(n.pods, c.podHandler()), add(n.anchors, c.anchorHandler())); err != nil {
			return unwatch, err
		}
	}
	return unwatch, nil
}

// keepAnchor remembers an anchor that this manager has made until the watch shows it.
func (c *controller) keepAnchor(m *memory, anchor *corev1.ConfigMap) {
	m.anchor, m.anchorUntil = anchor, c.clock.Now().Add(anchorFor)
}

// logger is the log with what every line about a pool says.
func (c *controller) logger(k key, image string) *slog.Logger {
	return c.log.With("pool", k.name, "image", image)
}
