package pool

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/watches"
)

// Indexes of the pods of a namespace.
const (
	byPool   = "pool"
	byRunner = "runner"
)

// namespaceCache is what the watches have shown of one namespace: the pods and anchors with a label of ours.
type namespaceCache struct {
	pods    cache.SharedIndexInformer
	anchors cache.SharedIndexInformer
	stop    chan struct{} // closed when the watches are to end
}

func (n *namespaceCache) synced() bool { return n.pods.HasSynced() && n.anchors.HasSynced() }

// anchor is the anchor of a pool, nil where the watch has shown none.
func (n *namespaceCache) anchor(k key) *corev1.ConfigMap {
	obj, exists, err := n.anchors.GetStore().GetByKey(k.String())
	if err != nil || !exists {
		return nil
	}
	anchor, _ := obj.(*corev1.ConfigMap)
	return anchor
}

// pod is a pod by name, nil where the watch doesn't show it.
func (n *namespaceCache) pod(namespace, name string) *corev1.Pod {
	obj, exists, err := n.pods.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	pod, _ := obj.(*corev1.Pod)
	return pod
}

// anchorsOf are the anchors of a runner's pools.
func (n *namespaceCache) anchorsOf(runner string) []*corev1.ConfigMap {
	objs, err := n.anchors.GetIndexer().ByIndex(byRunner, runner)
	if err != nil {
		return nil // only where there is no such index
	}
	anchors := make([]*corev1.ConfigMap, 0, len(objs))
	for _, obj := range objs {
		if anchor, ok := obj.(*corev1.ConfigMap); ok && anchor.Labels[factory.LabelPool] == anchor.Name {
			anchors = append(anchors, anchor)
		}
	}
	return anchors
}

// podsBy are the pods whose label has a value; index is byPool or byRunner.
func (n *namespaceCache) podsBy(index, value string) []*corev1.Pod {
	objs, err := n.pods.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // only where there is no such index
	}
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// caches are the watches of this process, a pair for each namespace. Standing by, a manager keeps them too, so that it can
// lead within a moment.
type caches struct {
	client  kubernetes.Interface
	onError func(namespace, resource string, err error)

	mu         sync.Mutex
	namespaces map[string]*namespaceCache
	running    sync.WaitGroup
}

func newCaches(client kubernetes.Interface, onError func(namespace, resource string, err error)) *caches {
	return &caches{client: client, onError: onError, namespaces: map[string]*namespaceCache{}}
}

// of is the cache of a namespace, nil where it isn't watched.
func (c *caches) of(namespace string) *namespaceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.namespaces[namespace]
}

// all are the caches by namespace.
func (c *caches) all() map[string]*namespaceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.namespaces)
}

// newNamespaceCache is an empty cache whose watches have not begun.
func newNamespaceCache(client kubernetes.Interface, namespace string) *namespaceCache {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = factory.LabelPool }
	return &namespaceCache{
		stop: make(chan struct{}),
		pods: coreinformers.NewFilteredPodInformer(client, namespace, 0, cache.Indexers{
			byPool: watches.ByLabel(factory.LabelPool), byRunner: watches.ByLabel(factory.LabelRunner),
		}, ours),
		anchors: coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{
			byRunner: watches.ByLabel(factory.LabelRunner),
		}, ours),
	}
}

// ensure starts the watches of a namespace, where there are none.
func (c *caches) ensure(namespace string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces[namespace] != nil {
		return nil
	}
	n := newNamespaceCache(c.client, namespace)
	for resource, informer := range map[string]cache.SharedIndexInformer{"pods": n.pods, "configmaps": n.anchors} {
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			c.onError(namespace, resource, err)
		})
		if err != nil {
			return fmt.Errorf("watch %s in namespace %s: %w", resource, namespace, err)
		}
		if err := informer.SetTransform(slim); err != nil {
			return fmt.Errorf("watch %s in namespace %s: %w", resource, namespace, err)
		}
		c.running.Go(func() { informer.Run(n.stop) })
	}
	c.namespaces[namespace] = n
	return nil
}

// drop ends the watches of a namespace.
func (c *caches) drop(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.namespaces[namespace]; n != nil {
		close(n.stop)
		delete(c.namespaces, namespace)
	}
}

// close ends all watches, and returns when they have ended.
func (c *caches) close() {
	for namespace := range c.all() {
		c.drop(namespace)
	}
	c.running.Wait()
}

// slim leaves of an object what passes read, so that thousands of pods fit in little memory. Objects of the cache are never
// sent back, so nothing is lost.
func slim(obj any) (any, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil //nolint:nilerr // a mark of the cache (DeletedFinalStateUnknown), not an object
	}
	accessor.SetManagedFields(nil)
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds}
	s := &pod.Status
	s.HostIPs, s.PodIPs, s.ResourceClaimStatuses = nil, nil, nil
	for _, containers := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range containers {
			c := &containers[i]
			c.Image, c.ImageID, c.ContainerID = "", "", ""
			c.AllocatedResources, c.Resources, c.VolumeMounts, c.User, c.AllocatedResourcesStatus = nil, nil, nil, nil, nil
		}
	}
	for k := range pod.Annotations {
		if !kept(k) {
			delete(pod.Annotations, k)
		}
	}
	return pod, nil
}

// kept are the annotations that passes read.
func kept(annotation string) bool {
	switch annotation {
	case factory.AnnotationImage, factory.AnnotationTemplate, factory.AnnotationIdleTime, factory.AnnotationWarmth, factory.AnnotationClaimedAt:
		return true
	default:
		return false
	}
}
