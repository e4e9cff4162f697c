package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

// podHandler takes what the watch shows of pods off the expectations, counts what happened, and asks for a pass.
func (c *controller) podHandler() cache.ResourceEventHandler {
	appeared := map[types.UID]time.Time{} // the calls come one after the other
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			c.observe(pod, false)
			switch phase := factory.PhaseOf(pod); {
			case isInInitialList:
			case phase == factory.Claimed:
				c.countClaim(pod, string(factory.Cold))
			case phase == factory.Warming:
				appeared[pod.UID] = c.clock.Now()
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
			c.count(before, pod, appeared)
			c.enqueue(pod)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				delete(appeared, pod.UID)
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

// count counts what has become of a pod. appeared is when the watch has shown each pod that is warming.
func (c *controller) count(before, pod *corev1.Pod, appeared map[types.UID]time.Time) {
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
		c.metrics.ready.WithLabelValues(c.seriesOf(pod).with()...).Observe(c.warmedUpIn(pod, appeared).Seconds())
	}
	if was == factory.Warming {
		delete(appeared, pod.UID)
	}
}

// warmedUpIn is how long a pod has taken to become ready. The API server's times are whole seconds, so they only serve where
// the pod is older than this manager's term.
func (c *controller) warmedUpIn(pod *corev1.Pod, appeared map[types.UID]time.Time) time.Duration {
	if at, ok := appeared[pod.UID]; ok {
		return c.clock.Since(at)
	}
	return factory.ReadySince(pod).Sub(pod.CreationTimestamp.Time)
}

func (c *controller) countClaim(pod *corev1.Pod, how string) {
	of := c.seriesOf(pod)
	c.metrics.claims.WithLabelValues(of.with(how)...).Inc()
	if how != string(factory.Cold) && of.pool != noPool {
		c.metrics.refills.claimed(of.pool, c.clock.Now())
	}
}

// seriesOf is how metrics name a pod's pool.
func (c *controller) seriesOf(pod *corev1.Pod) series {
	s := c.setup.Load()
	if p := s.pools[key{pod.Namespace, labelPool(pod)}]; p != nil {
		return p.series()
	}
	return s.noPool(pod.Namespace, pod.Labels[factory.LabelRunner])
}

func labelPool(pod *corev1.Pod) string { return pod.Labels[factory.LabelPool] }
