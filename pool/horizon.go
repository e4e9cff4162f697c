package pool

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
)

const (
	// horizonEvery is how often a watch that lags at the begin of a term is looked at.
	horizonEvery = 100 * time.Millisecond
	// settleTime is what the cache needs at most to take in what its watch has received.
	settleTime = 2 * time.Second
)

// horizon is what a LIST has shown of objects at the begin of a leader's term. Passes begin once the watch has reached it:
// the last leader may have made pods a moment ago, and jobs may have claimed some, that this manager's watch hasn't shown.
type horizon struct {
	version  string            // of the whole list
	versions map[string]string // of each object, by name
	received time.Time         // when the watch was found to have received all of it; zero = not yet
}

// reached says whether the cache is at least as new as the horizon.
func (h *horizon) reached(informer cache.SharedIndexInformer, now time.Time) bool {
	if h.shownBy(informer.GetStore()) {
		return true
	}
	// An object may have gone between the LIST and the watch: then the cache never shows it, but the watch moves on.
	if h.received.IsZero() && atLeast(informer.LastSyncResourceVersion(), h.version) {
		h.received = now
	}
	return !h.received.IsZero() && !now.Before(h.received.Add(settleTime))
}

func (h *horizon) shownBy(store cache.Store) bool {
	found := 0
	for _, obj := range store.List() {
		o, ok := obj.(metav1.Object)
		if !ok {
			return false
		}
		version, listed := h.versions[o.GetName()]
		switch {
		case listed && !atLeast(o.GetResourceVersion(), version):
			return false // has changed
		case listed:
			found++
		case !atLeast(o.GetResourceVersion(), h.version):
			return false // is gone
		}
	}
	return found == len(h.versions)
}

// atLeast says whether a resource version is as new as another one. Where an API server's versions can't be compared
// there is nothing to wait for.
func atLeast(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return order >= 0 || err != nil && version != ""
}

// upToDate says whether the cache of a namespace has reached the state that the namespace had at the begin of the term.
func (c *controller) upToDate(ctx context.Context, namespace string, n *namespaceCache) (bool, error) {
	h := c.namespaces[namespace]
	if h == nil {
		return false, nil // let go of, or not begun with yet; enter comes back to it
	}
	if !h.listed {
		pods, err := c.list(ctx, namespace, "pods")
		if err != nil {
			return false, err
		}
		anchors, err := c.list(ctx, namespace, "configmaps")
		if err != nil {
			return false, err
		}
		h.pods, h.anchors, h.listed = pods, anchors, true
	}
	now := c.clock.Now()
	if h.pods != nil && h.pods.reached(n.pods, now) {
		h.pods = nil
	}
	if h.anchors != nil && h.anchors.reached(n.anchors, now) {
		h.anchors = nil
	}
	return h.pods == nil && h.anchors == nil, nil
}

// namespaceTerm is what the worker knows of a namespace in a term.
type namespaceTerm struct {
	unwatch       []func() // ends the handlers of its watches
	listed        bool     // whether the horizons are known
	pods, anchors *horizon // nil once they were reached
	window        window
	quotaAt       time.Time // when a quota last refused a pod; zero = never
}

// list sees the versions of what the caches of a namespace should show, straight from the API server.
func (c *controller) list(ctx context.Context, namespace, resource string) (*horizon, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	h := &horizon{versions: map[string]string{}}
	options := metav1.ListOptions{LabelSelector: factory.LabelPool, Limit: 500}
	for {
		meta, objects, err := c.listPage(ctx, namespace, resource, options)
		if err != nil {
			return nil, fmt.Errorf("list %s in namespace %s: %w", resource, namespace, err)
		}
		for _, o := range objects {
			h.versions[o.GetName()] = o.GetResourceVersion()
		}
		h.version = meta.ResourceVersion
		if options.Continue = meta.Continue; options.Continue == "" {
			return h, nil
		}
	}
}

func (c *controller) listPage(ctx context.Context, namespace, resource string, o metav1.ListOptions) (meta metav1.ListMeta, objects []metav1.Object, err error) {
	if resource == "pods" {
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, o)
		if err != nil {
			return meta, nil, err
		}
		for i := range pods.Items {
			objects = append(objects, &pods.Items[i])
		}
		return pods.ListMeta, objects, nil
	}
	anchors, err := c.client.CoreV1().ConfigMaps(namespace).List(ctx, o)
	if err != nil {
		return meta, nil, err
	}
	for i := range anchors.Items {
		objects = append(objects, &anchors.Items[i])
	}
	return anchors.ListMeta, objects, nil
}
