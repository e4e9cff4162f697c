package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// always holds a rule over the namespace's pods at each event, from now on until the test ends or the function that it
// returns is called.
func (s *site) always(rule func(pods []*corev1.Pod) error) (until func()) {
	s.t.Helper()
	informer := coreinformers.NewPodInformer(s.client, s.namespace, 0, cache.Indexers{})
	var mu sync.Mutex
	var broken error
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		var pods []*corev1.Pod
		for _, obj := range informer.GetStore().List() {
			pods = append(pods, obj.(*corev1.Pod))
		}
		if err := rule(pods); err != nil && broken == nil {
			broken = fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	require.True(s.t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() }, UpdateFunc: func(_, _ any) { look() }, DeleteFunc: func(any) { look() },
	})
	require.NoError(s.t, err)
	until = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.NoError(s.t, broken)
	})
	s.t.Cleanup(until)
	return until
}

// atLeastIdle is the rule that so many pods are idle.
func atLeastIdle(n int) func([]*corev1.Pod) error {
	return func(pods []*corev1.Pod) error {
		idle := 0
		var all []string
		for _, pod := range pods {
			phase := factory.PhaseOf(pod)
			if phase == factory.Idle {
				idle++
			}
			all = append(all, pod.Name+" "+string(phase))
		}
		if idle < n {
			return fmt.Errorf("%d pods are idle, not %d: %v", idle, n, all)
		}
		return nil
	}
}

// statuses are those of the namespace's pools, by name.
func (s *site) statuses() map[string]status.Status {
	s.t.Helper()
	anchors, err := s.client.CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: factory.LabelPool})
	require.NoError(s.t, err)
	found := map[string]status.Status{}
	for i := range anchors.Items {
		if st, err := status.Of(&anchors.Items[i]); err == nil {
			found[anchors.Items[i].Name] = st
		}
	}
	return found
}

// untilStatus waits until some pool's status is as wanted, and returns it.
func (s *site) untilStatus(what string, wanted func(status.Status) bool) status.Status {
	s.t.Helper()
	var found status.Status
	require.Eventually(s.t, func() bool {
		for _, st := range s.statuses() {
			if wanted(st) {
				found = st
				return true
			}
		}
		return false
	}, patience, 100*time.Millisecond, "a pool's status: %s", what)
	return found
}

func shortOf(reason status.Reason) func(status.Status) bool {
	return func(s status.Status) bool { return s.Shortfall != nil && s.Shortfall.Reason == reason }
}

// events are the messages of a reason's events on the namespace's anchors.
func (s *site) events(reason string) []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ConfigMap,reason=" + reason})
	require.NoError(s.t, err)
	var messages []string
	for _, event := range list.Items {
		messages = append(messages, event.Message)
	}
	return messages
}
