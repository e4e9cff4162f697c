package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"idlecount.dev/idlecount/factory"
)

// life is when a pod was seen to become what it is; zero = not yet. All times are those of one watch on one machine, for
// whoever made the pods, so they can be compared.
type life struct {
	pool                           string
	created, ready, claimed, ended time.Time
}

// observer notes the lives of a namespace's pods.
type observer struct {
	mu      sync.Mutex
	lives   map[types.UID]*life
	changed chan struct{}
	broken  error
}

// observe begins with a namespace that has no pods, until ctx ends.
func observe(ctx context.Context, client kubernetes.Interface, namespace string) (*observer, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, err
	}
	o := &observer{lives: map[types.UID]*life{}, changed: make(chan struct{})}
	go func() {
		for event := range w.ResultChan() {
			o.take(event, time.Now())
		}
	}()
	return o, nil
}

func (o *observer) take(event watch.Event, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { close(o.changed); o.changed = make(chan struct{}) }()
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		o.broken = fmt.Errorf("the watch has lost its place: %v", event.Object)
		return
	}
	l := o.lives[pod.UID]
	if l == nil {
		l = &life{pool: pod.Labels[factory.LabelPool]}
		o.lives[pod.UID] = l
	}
	note := func(when *time.Time, holds bool) {
		if holds && when.IsZero() {
			*when = at
		}
	}
	note(&l.created, true)
	note(&l.ready, factory.ReadySince(pod) != nil)
	note(&l.claimed, pod.Labels[factory.LabelState] == factory.StateClaimed)
	note(&l.ended, event.Type == watch.Deleted)
}

// await waits until as many pods are idle and claimed as asked for, and none are there besides.
func (o *observer) await(ctx context.Context, idle, claimed int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		o.mu.Lock()
		changed, broken := o.changed, o.broken
		there, ready, taken := 0, 0, 0
		for _, l := range o.lives {
			switch {
			case !l.ended.IsZero():
				continue
			case !l.claimed.IsZero():
				taken++
			case !l.ready.IsZero():
				ready++
			}
			there++
		}
		o.mu.Unlock()
		switch {
		case broken != nil:
			return broken
		case ready == idle && taken == claimed && there == idle+claimed:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %d idle and %d claimed pods, saw %d, %d and %d of them so: %w", idle, claimed, there, ready, taken, ctx.Err())
		case <-changed:
		}
		select { // one look for many events
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// since are the lives of pods that were created after a time, by their creation.
func (o *observer) since(begin time.Time) []life {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []life
	for _, l := range o.lives {
		if l.created.After(begin) {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b life) int { return a.created.Compare(b.created) })
	return found
}

// claimedSince are the lives of pods that were claimed after a time, by their claim.
func (o *observer) claimedSince(begin time.Time) []life {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []life
	for _, l := range o.lives {
		if l.claimed.After(begin) {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b life) int { return a.claimed.Compare(b.claimed) })
	return found
}
