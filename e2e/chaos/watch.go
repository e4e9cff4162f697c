package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"idlecount.dev/idlecount/factory"
)

// Watch shows the checker each event of the pods of a namespace that has none yet, until ctx ends. It returns an error
// where the watch has lost its place, since then something may have gone unseen.
func (c *Checker) Watch(ctx context.Context, client kubernetes.Interface, namespace string) (wait func() error, err error) {
	options := metav1.ListOptions{LabelSelector: factory.LabelPool}
	list, err := client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("namespace %s has pods already", namespace)
	}
	// A watch that breaks goes on where it was: no event is missed, or it ends.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = options.LabelSelector
			return client.CoreV1().Pods(namespace).Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		defer w.Stop()
		ended <- c.follow(ctx, w.ResultChan())
	}()
	return func() error { return <-ended }, nil
}

func (c *Checker) follow(ctx context.Context, events <-chan watch.Event) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events:
			if !open {
				return lost(ctx, errors.New("the checker's watch has ended"))
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return lost(ctx, fmt.Errorf("the checker's watch has lost its place: %s %v", event.Type, event.Object))
			}
			c.Observe(event.Type, pod, time.Now())
		}
	}
}

// lost is why a watch is lost, nil where it was told to end.
func lost(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is what ends a watch
	}
	return why
}
