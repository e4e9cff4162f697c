package pool_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// view is a namespace's pods and anchors as a watch of the test's own shows them.
type view struct {
	pods, anchors cache.SharedIndexInformer

	mu      sync.Mutex
	waiting chan struct{} // closed and replaced when something changes
	checks  []func(pods []*corev1.Pod) error
	broken  error
}

func newView(t *testing.T, client kubernetes.Interface, namespace string) *view {
	v := &view{
		pods:    coreinformers.NewPodInformer(client, namespace, 0, cache.Indexers{}),
		anchors: coreinformers.NewConfigMapInformer(client, namespace, 0, cache.Indexers{}),
		waiting: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, informer := range []cache.SharedIndexInformer{v.pods, v.anchors} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { v.change() }, UpdateFunc: func(_, _ any) { v.change() }, DeleteFunc: func(any) { v.change() },
		})
		require.NoError(t, err)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	require.True(t, cache.WaitForCacheSync(ctx.Done(), v.pods.HasSynced, v.anchors.HasSynced))
	return v
}

func (v *view) change() {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods := v.all()
	for _, check := range v.checks {
		if err := check(pods); err != nil && v.broken == nil {
			v.broken = err
		}
	}
	close(v.waiting)
	v.waiting = make(chan struct{})
}

func (v *view) all() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, obj := range v.pods.GetStore().List() {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

// always holds a condition at each event until the end of the test.
func (v *view) always(t *testing.T, check func(pods []*corev1.Pod) error) {
	v.mu.Lock()
	v.checks = append(v.checks, check)
	v.mu.Unlock()
	t.Cleanup(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		require.NoError(t, v.broken)
	})
}

// await waits until a condition holds.
func (v *view) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		v.mu.Lock()
		waiting, broken := v.waiting, v.broken
		v.mu.Unlock()
		require.NoError(t, broken)
		if holds() {
			return
		}
		select {
		case <-waiting:
		case <-timeout:
			for _, pod := range v.all() {
				t.Logf("pod %s %s %s", pod.Name, factory.PhaseOf(pod), pod.UID)
			}
			for _, a := range v.anchors.GetStore().List() {
				t.Logf("anchor %s %v", a.(*corev1.ConfigMap).Name, a.(*corev1.ConfigMap).Data)
			}
			t.Fatalf("this never came true: %s", what)
		}
	}
}

// in are the pods in any of the phases, by name.
func (v *view) in(phases ...factory.Phase) map[string]*corev1.Pod {
	found := map[string]*corev1.Pod{}
	for _, pod := range v.all() {
		for _, phase := range phases {
			if factory.PhaseOf(pod) == phase {
				found[pod.Name] = pod
			}
		}
	}
	return found
}

// awaitPods waits until exactly n pods are in a phase, and no others are unclaimed.
func (v *view) awaitPods(t *testing.T, n int, phase factory.Phase) map[string]*corev1.Pod {
	t.Helper()
	v.await(t, fmt.Sprintf("%d pods are %s, and no others are unclaimed", n, phase), func() bool {
		return len(v.in(phase)) == n && len(v.in(factory.Warming, factory.Idle, factory.Expired, factory.Failed)) == n
	})
	return v.in(phase)
}

// statuses are those of the anchors, by pool.
func (v *view) statuses() map[string]status.Status {
	found := map[string]status.Status{}
	for _, obj := range v.anchors.GetStore().List() {
		if anchor := obj.(*corev1.ConfigMap); anchor.Labels[factory.LabelPool] != "" {
			if s, err := status.Of(anchor); err == nil {
				found[anchor.Name] = s
			}
		}
	}
	return found
}

// awaitShortfall waits until some pool is short for a reason, and returns what it says.
func (v *view) awaitShortfall(t *testing.T, reason status.Reason) status.Shortfall {
	t.Helper()
	var found status.Shortfall
	v.await(t, fmt.Sprintf("a pool is short because of %s", reason), func() bool {
		for _, s := range v.statuses() {
			if s.Shortfall != nil && s.Shortfall.Reason == reason {
				found = *s.Shortfall
				return true
			}
		}
		return false
	})
	return found
}

func (v *view) awaitNoShortfall(t *testing.T) {
	t.Helper()
	v.await(t, "no pool is short", func() bool {
		for _, s := range v.statuses() {
			if s.Shortfall != nil {
				return false
			}
		}
		return true
	})
}
