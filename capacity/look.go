package capacity

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// look fills the cache of a namespace once; its watches never begin.
func look(ctx context.Context, client kubernetes.Interface, namespace string, log *slog.Logger) (*namespaceCache, error) {
	n := newNamespaceCache(client, namespace)
	pods, anchors, deployments := client.CoreV1().Pods(namespace), client.CoreV1().ConfigMaps(namespace), client.AppsV1().Deployments(namespace)
	for _, one := range []struct {
		what     string
		informer cache.SharedIndexInformer
		list     func() (runtime.Object, error)
	}{
		{"the capacities' ConfigMaps", n.anchors, func() (runtime.Object, error) { return anchors.List(ctx, selected(capacitySelector)) }},
		{"the Deployments of pause pods", n.deployments, func() (runtime.Object, error) { return deployments.List(ctx, selected(capacitySelector)) }},
		{"pause pods", n.pauses, func() (runtime.Object, error) { return pods.List(ctx, selected(capacitySelector)) }},
		{"the pods of jobs", n.jobs, func() (runtime.Object, error) { return pods.List(ctx, selected(jobSelector)) }},
		{"idle pods", n.idle, func() (runtime.Object, error) { return pods.List(ctx, selected(idleSelector)) }},
		{"ResourceQuotas", n.quotas, func() (runtime.Object, error) {
			return client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
		}},
		{"LimitRanges", n.limits, func() (runtime.Object, error) {
			return client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
		}},
	} {
		list, err := one.list()
		if err != nil && n.optional(one.informer) {
			log.Warn("can't see the "+one.what+", so the plan goes without them", "namespace", namespace, "error", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s in namespace %s: %w", one.what, namespace, err)
		}
		if err := fill(one.informer, list); err != nil {
			return nil, fmt.Errorf("list %s in namespace %s: %w", one.what, namespace, err)
		}
	}
	return n, nil
}

func selected(labels string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: labels} }

// fill puts the items of a list into what an informer has seen.
func fill(informer cache.SharedIndexInformer, list runtime.Object) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := informer.GetIndexer().Add(item); err != nil {
			return err
		}
	}
	return nil
}
