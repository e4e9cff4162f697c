package pool

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

// podHandler takes what the watch shows of pods off the expectations, counts what happened, and asks for a pass.
func (c *controller) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			c.observe(pod, false)
			if !isInInitialList && factory.PhaseOf(pod) == factory.Claimed {
				c.countClaim(pod, string(factory.Cold))
			}
			c.enqueue(pod)
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*corev1.Pod)
			pod, also := newObj.(*corev1.Pod)
			if !ok || !also || before.ResourceVersion == pod.ResourceVersion {
				return
			}
			c.observe(pod, false)
			c.count(before, pod)
			c.enqueue(pod)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				c.observe(pod, true)
				c.enqueue(pod)
			}
		},
	}
}

func (c *controller) anchorHandler() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if anchor, ok := obj.(*corev1.ConfigMap); ok {
			c.queue.Add(key{anchor.Namespace, anchor.Name})
			c.enqueueTied(anchor.Namespace, anchor.Labels[factory.LabelRunner])
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			enqueue(obj)
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				c.queue.Add(key{namespace: name.Namespace})
			}
		},
	}
}

func (c *controller) observe(pod *corev1.Pod, gone bool) {
	c.expect.dropCreate(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	if gone || pod.DeletionTimestamp != nil {
		c.expect.dropDelete(pod.UID)
	}
}

// enqueue asks for a pass over the pod's pool, and over those that are tied to it.
func (c *controller) enqueue(pod *corev1.Pod) {
	c.queue.Add(key{pod.Namespace, labelPool(pod)})
	c.enqueueTied(pod.Namespace, pod.Labels[factory.LabelRunner])
}

// enqueueTied asks for passes over all pools of a runner where a limit ties them together, or one replaces another.
func (c *controller) enqueueTied(namespace, runner string) {
	s, n := c.setup.Load(), c.caches.of(namespace)
	if n == nil {
		return
	}
	keys := s.ofRunner[runnerIn{namespace, runner}]
	tied := len(keys) > 0 && s.pools[keys[0]].runner.Limit > 0
	anchors := n.anchorsOf(runner)
	for _, anchor := range anchors {
		tied = tied || s.successor(anchor) != nil
	}
	if !tied {
		return
	}
	for _, k := range keys {
		c.queue.Add(k)
	}
	for _, anchor := range anchors {
		c.queue.Add(key{anchor.Namespace, anchor.Name})
	}
}

// count counts what has become of a pod.
func (c *controller) count(before, pod *corev1.Pod) {
	was, is := factory.PhaseOf(before), factory.PhaseOf(pod)
	if was == is {
		return
	}
	switch {
	case is == factory.Claimed && was == factory.Idle:
		c.countClaim(pod, string(factory.Warm))
	case is == factory.Claimed && was == factory.Warming:
		c.countClaim(pod, string(plan.Warming))
	case is == factory.Idle && was == factory.Warming:
		took := factory.ReadySince(pod).Sub(pod.CreationTimestamp.Time)
		c.metrics.ready.WithLabelValues(c.poolLabels(pod)...).Observe(took.Seconds())
	}
}

func (c *controller) countClaim(pod *corev1.Pod, how string) {
	c.metrics.claims.WithLabelValues(append(c.poolLabels(pod), how)...).Inc()
}

// poolLabels are a pod's pool and image as metrics have them: jobs bring any image, so that those of no configured pool
// share one name.
func (c *controller) poolLabels(pod *corev1.Pod) []string {
	if p := c.setup.Load().pools[key{pod.Namespace, labelPool(pod)}]; p != nil {
		return []string{p.key.name, p.image}
	}
	return []string{noPool, otherImage}
}

// The labels of pods that no pool has.
const (
	noPool     = "none"
	otherImage = "other"
)

func labelPool(pod *corev1.Pod) string { return pod.Labels[factory.LabelPool] }
