package factory

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Footprint is what the containers of a pod take of a node as one container would: the sum of them and of sidecars, or what its
// init containers need where that is more; of all resources, also those that devices bring. It is the scheduler's own sum. What
// stands at the pod itself is not in it, but bounds its limits, as it does those of each container. The overhead of a runtime
// class is not in it: admission adds that to each pod of the class. What a namespace's LimitRanges add to containers is not in
// it either: see Admitted.
//
// It has a limit of a resource where each container has one, since a quota that asks for limits then has got them from the
// job's pod too, and it would refuse the pause pod without.
func Footprint(spec corev1.PodSpec) corev1.ResourceRequirements {
	pod := &corev1.Pod{Spec: Admitted(spec, nil)}
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true, SkipPodLevelResources: true}
	f := corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, options)}
	for name, limit := range resourcehelper.PodLimits(pod, options) {
		if !limited(pod, name) {
			continue
		}
		if f.Limits == nil {
			f.Limits = corev1.ResourceList{}
		}
		if whole := pod.Spec.Resources; whole != nil {
			if most, ok := whole.Limits[name]; ok && most.Cmp(limit) < 0 {
				limit = most
			}
		}
		f.Limits[name] = limit
	}
	for name, request := range f.Requests {
		switch _, has := f.Limits[name]; {
		case request.IsZero() && !has:
			delete(f.Requests, name)
		case isExtended(name):
			if f.Limits == nil {
				f.Limits = corev1.ResourceList{}
			}
			f.Limits[name] = request // of such, nothing can be overcommitted
		}
	}
	return f
}

// requestLimits does what the API server does: what has a limit and no request requests the limit.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		r.Requests = maps.Clone(r.Requests)
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit
	}
}

// limited says whether each of the pod's containers has a limit of a resource.
func limited(pod *corev1.Pod, name corev1.ResourceName) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if _, ok := list[i].Resources.Limits[name]; !ok {
				return false
			}
		}
	}
	return true
}

// isExtended says whether a resource is a device's, such as nvidia.com/gpu, or a huge page.
func isExtended(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return false
	default:
		return true
	}
}
