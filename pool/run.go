package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/record"

	"idlecount.dev/idlecount/internal/unkept"
)

// reachWithin bounds the tries to reach the API server at the start: a restart of the API server is waited for, a
// kubeconfig that points nowhere is not.
const reachWithin = 5 * time.Second

// Run manages the pools of the configuration until ctx ends, whenever it holds the lease. It returns an error where it
// can't begin: the API server can't be reached, or the configuration makes no pods. What goes wrong later is logged, told
// by Health and the pools' status, and tried again.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	first, err := newSetup(o.Config, o.Log)
	if err != nil {
		return err
	}
	counters, err := newMetrics(o.Registry, o.Clock)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := reach(ctx, o.Client); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before the API server has answered
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	configs := newConfigs(o, counters, first)
	permissions := newAccess(o, first.namespaces, counters.missing)
	watches := newCaches(o.Client, watchErrors(o.Log, permissions))
	defer watches.close()
	if err := prepare(first, watches); err != nil {
		return err
	}
	events, end := newEvents(o)
	defer end()
	var watching sync.WaitGroup
	watching.Go(func() { permissions.watch(ctx) })
	watching.Go(func() { reload(ctx, o, configs, permissions, watches) })
	defer watching.Wait()
	defer cancel()

	var leads atomic.Bool
	lock, out := newLock(o), &unkept.List{}
	watchdog := leaderelection.NewLeaderHealthzAdaptor(o.RenewDeadline)
	o.Health.set(
		func() error { return watchdog.Check(nil) },
		func() []string {
			reasons := append(unready(leads.Load(), lock, permissions, watches, configs.now().namespaces), out.Reasons()...)
			if o.Beside != nil {
				reasons = append(reasons, o.Beside.Unkept()...)
			}
			return reasons
		},
	)
	return elect(ctx, o, lock, watchdog, func(held context.Context) {
		leads.Store(true)
		counters.leader.Set(1)
		o.Log.Info("this manager leads", "lease", o.lease(), "identity", o.Identity, "pools", len(configs.now().pools))
		c := newController(o, configs, watches, newHome(o, lock.holds), permissions, out, counters, events)
		beside(held, o, configs, func() { lead(held, ctx, o, c) })
		leads.Store(false)
		counters.leader.Set(0)
		o.Log.Info("this manager stops leading", "lease", o.lease(), "identity", o.Identity)
	})
}

// beside has Options.Beside lead until the pools' part of a term is over.
func beside(held context.Context, o Options, configs *configs, lead func()) {
	ctx, end := context.WithCancel(held)
	var running sync.WaitGroup
	if o.Beside != nil {
		running.Go(func() { o.Beside.Lead(ctx, configs.current) })
	}
	lead()
	end()
	running.Wait()
}

// prepare watches the namespaces of a configuration.
func prepare(s *setup, watches *caches) error {
	for _, namespace := range s.namespaces {
		if err := watches.ensure(namespace); err != nil {
			return err
		}
	}
	return nil
}

// reload takes over what becomes of the configuration file, until ctx ends.
func reload(ctx context.Context, o Options, configs *configs, permissions *access, watches *caches) {
	for {
		select {
		case <-ctx.Done():
			return
		case r, open := <-o.Reloads:
			if !open {
				return
			}
			// Also while another manager leads, so that this one can lead within a moment.
			configs.take(r, func(s *setup) {
				if err := prepare(s, watches); err != nil {
					o.Log.Error("a namespace can't be watched", "error", err)
				}
				permissions.cover(s.namespaces)
			})
		}
	}
}

// lead is one term. Told to stop, it may finish its pass.
func lead(held, stop context.Context, o Options, c *controller) {
	ctx, cancel := context.WithCancel(held)
	defer cancel()
	defer context.AfterFunc(stop, func() {
		select {
		case <-o.Clock.After(finishWithin):
			cancel()
		case <-ctx.Done():
		}
	})()
	for {
		err := c.run(ctx, stop)
		if err == nil || ctx.Err() != nil || stop.Err() != nil {
			return
		}
		o.Log.Error("a manager can't begin its term and will try again", "error", err)
		select {
		case <-o.Clock.After(o.RetryPeriod):
		case <-ctx.Done():
			return
		case <-stop.Done():
			return
		}
	}
}

// reach asks the API server for its version, and again for a while.
func reach(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	var why error
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		switch {
		case err == nil, apierrors.IsForbidden(err): // some clusters show their version to nobody
			return nil
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("the Kubernetes API doesn't know this manager: %w; check the credentials in the kubeconfig", err)
		case why == nil || !errors.Is(err, context.DeadlineExceeded): // the end of our own patience says nothing of the cause
			why = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Kubernetes API can't be reached: %w; check the server in the kubeconfig, and that it runs", why)
		case <-time.After(time.Second):
		}
	}
}

// unready are the reasons why this manager can't do its work.
func unready(leads bool, lock *noisyLock, a *access, c *caches, namespaces []string) []string {
	var reasons []string
	if !a.Checked() {
		reasons = append(reasons, "the manager's permissions have not been checked yet")
	}
	for _, missing := range a.Missing() {
		reasons = append(reasons, "missing permission: "+missing)
	}
	if trouble := lock.trouble(); trouble != "" {
		reasons = append(reasons, "the lease can't be had: "+trouble)
	}
	if !leads {
		return reasons
	}
	for _, namespace := range namespaces {
		if n := c.of(namespace); n == nil || !n.synced() {
			reasons = append(reasons, "namespace "+namespace+" has not been seen yet")
		}
	}
	return reasons
}

// watchErrors logs each error of a watch once, until another one comes.
func watchErrors(log *slog.Logger, a *access) func(namespace, resource string, err error) {
	var mu sync.Mutex
	last := map[string]string{}
	return func(namespace, resource string, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			a.recheck()
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return // the watch was away for long and lists anew
		}
		mu.Lock()
		defer mu.Unlock()
		what := resource + " in namespace " + namespace
		if last[what] == err.Error() {
			return
		}
		last[what] = err.Error()
		log.Warn("a watch has ended and is tried again", "what", what, "error", err)
	}
}

// newEvents records events, which are written in the background until end is called.
func newEvents(o Options) (recorder record.EventRecorder, end func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Client.CoreV1().Events(corev1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "idlecount"}), broadcaster.Shutdown
}
