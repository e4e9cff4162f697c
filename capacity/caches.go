package capacity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/watches"
)

// Selectors of what is watched.
const (
	capacitySelector = factory.LabelCapacity
	jobSelector      = status.JobSelector
	idleSelector     = factory.LabelState + "=" + factory.StateIdle
)

// byRunner indexes pods by the label that names their runner.
const byRunner = "runner"

// namespaceCache is what the watches of a term have shown of one namespace.
type namespaceCache struct {
	deployments cache.SharedIndexInformer
	anchors     cache.SharedIndexInformer
	pauses      cache.SharedIndexInformer // pause pods
	jobs        cache.SharedIndexInformer // pods of jobs, ours and those of GitLab's executor
	idle        cache.SharedIndexInformer // idle pods, which share the runner's limit
	quotas      cache.SharedIndexInformer
	limits      cache.SharedIndexInformer // LimitRanges
}

// watched is one of the watches.
type watched struct {
	resource string
	informer cache.SharedIndexInformer
	without  string // what it means where passes do without, since the manager may not see it; "" = they can't
}

func (n *namespaceCache) all() []watched {
	return []watched{
		{"deployments", n.deployments, ""}, {"configmaps", n.anchors, ""}, {"pause pods", n.pauses, ""},
		{"pods of jobs", n.jobs, ""}, {"idle pods", n.idle, ""},
		{"resourcequotas", n.quotas, "pause pods may fill a quota and keep jobs out"},
		{"limitranges", n.limits, "room may be smaller than jobs, whose containers get a LimitRange's defaults"},
	}
}

func newNamespaceCache(client kubernetes.Interface, namespace string) *namespaceCache {
	labelled := func(selector string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.LabelSelector = selector }
	}
	pods := func(selector, label string) cache.SharedIndexInformer {
		return coreinformers.NewFilteredPodInformer(client, namespace, 0, cache.Indexers{byRunner: watches.ByLabel(label)}, labelled(selector))
	}
	return &namespaceCache{
		deployments: appsinformers.NewFilteredDeploymentInformer(client, namespace, 0, cache.Indexers{}, labelled(capacitySelector)),
		anchors:     coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, labelled(capacitySelector)),
		pauses:      pods(capacitySelector, factory.LabelCapacity),
		jobs:        pods(jobSelector, factory.LabelGitLabManagerID),
		idle:        pods(idleSelector, factory.LabelRunner),
		quotas:      coreinformers.NewResourceQuotaInformer(client, namespace, 0, cache.Indexers{}),
		limits:      coreinformers.NewLimitRangeInformer(client, namespace, 0, cache.Indexers{}),
	}
}

// synced says whether all has been seen that passes go by. Who is denied to see quotas or LimitRanges does without.
func (n *namespaceCache) synced(denied func(resource string) bool) bool {
	for _, w := range n.all() {
		if !w.informer.HasSynced() && (w.without == "" || !denied(w.resource)) {
			return false
		}
	}
	return true
}

// run watches until ctx ends. changed is called for every change, onError for each error of a watch.
func (n *namespaceCache) run(ctx context.Context, running *sync.WaitGroup, changed func(), jobs cache.ResourceEventHandler, onError func(w watched, err error)) error {
	for _, w := range n.all() {
		err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { onError(w, err) })
		if err != nil {
			return fmt.Errorf("watch %s: %w", w.resource, err)
		}
		if err := w.informer.SetTransform(slim); err != nil {
			return fmt.Errorf("watch %s: %w", w.resource, err)
		}
		if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
		}); err != nil {
			return fmt.Errorf("watch %s: %w", w.resource, err)
		}
	}
	if _, err := n.jobs.AddEventHandler(jobs); err != nil {
		return fmt.Errorf("watch pods of jobs: %w", err)
	}
	for _, w := range n.all() {
		running.Go(func() { w.informer.RunWithContext(ctx) })
	}
	return nil
}

// optional says whether passes can do without a watch.
func (n *namespaceCache) optional(informer cache.SharedIndexInformer) bool {
	return slices.ContainsFunc(n.all(), func(w watched) bool { return w.informer == informer && w.without != "" })
}

func (n *namespaceCache) deployment(namespace, name string) *appsv1.Deployment {
	d, _ := get(n.deployments, namespace, name).(*appsv1.Deployment)
	return d
}

func (n *namespaceCache) anchor(namespace, name string) *corev1.ConfigMap {
	a, _ := get(n.anchors, namespace, name).(*corev1.ConfigMap)
	return a
}

// left are the anchors of a lease's managers whose capacity has left the configuration, by name.
func (n *namespaceCache) left(configured specs, lease string) []*corev1.ConfigMap {
	var left []*corev1.ConfigMap
	for _, anchor := range n.allAnchors() {
		if configured.has(key{anchor.Namespace, anchor.Name}) {
			continue
		}
		if s, err := status.Of(anchor); err == nil && s.Lease != "" && s.Lease == lease {
			left = append(left, anchor)
		}
	}
	return left
}

// allAnchors are those of all capacities in the namespace, by name.
func (n *namespaceCache) allAnchors() []*corev1.ConfigMap {
	var anchors []*corev1.ConfigMap
	for _, obj := range n.anchors.GetStore().List() {
		if anchor, ok := obj.(*corev1.ConfigMap); ok && status.IsAnchor(anchor) {
			anchors = append(anchors, anchor)
		}
	}
	slices.SortFunc(anchors, func(a, b *corev1.ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
	return anchors
}

// limitRanges are the LimitRanges by name, and which versions of them.
func (n *namespaceCache) limitRanges() (ranges []*corev1.LimitRange, seen string) {
	return sorted[*corev1.LimitRange](n.limits.GetStore())
}

// resourceQuotas are the quotas by name, and which versions of them.
func (n *namespaceCache) resourceQuotas() (quotas []*corev1.ResourceQuota, seen string) {
	return sorted[*corev1.ResourceQuota](n.quotas.GetStore())
}

// sorted is what a store has, by name, and which versions of it.
func sorted[T metav1.Object](store cache.Store) (list []T, seen string) {
	for _, key := range slices.Sorted(slices.Values(store.ListKeys())) {
		if obj, exists, err := store.GetByKey(key); err == nil && exists {
			if one, ok := obj.(T); ok {
				list, seen = append(list, one), seen+" "+string(one.GetUID())+"/"+one.GetResourceVersion()
			}
		}
	}
	return list, seen
}

func get(informer cache.SharedIndexInformer, namespace, name string) any {
	obj, exists, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return obj
}

// live are the pods with a value of the index that haven't ended and aren't ending.
func live(informer cache.SharedIndexInformer, value string) []*corev1.Pod {
	objs, err := informer.GetIndexer().ByIndex(byRunner, value)
	if err != nil {
		return nil // only where there is no such index
	}
	var pods []*corev1.Pod
	for _, obj := range objs {
		pod, ok := obj.(*corev1.Pod)
		ended := ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
		if ok && !ended && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// slim leaves of a pod what passes read: its labels and owner, its images, its node, what quotas count, what became of it, and
// whether a driver has asked for its room.
func slim(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	var annotations map[string]string
	if since, ok := pod.Annotations[factory.AnnotationGivenBack]; ok {
		annotations = map[string]string{factory.AnnotationGivenBack: since}
	}
	pod.Spec, pod.Annotations = footprint(pod.Spec), annotations
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, NominatedNodeName: pod.Status.NominatedNodeName}
	return pod, nil
}
