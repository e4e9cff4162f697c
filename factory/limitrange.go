package factory

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Admitted is a pod as the API server takes it in a namespace with these LimitRanges: what has a limit and no request requests
// the limit, and each container has what it lacks from the ranges' defaults. They are in the order in which they apply. What has a
// limit at the pod itself and no request there requests what its containers do, or else the limit.
func Admitted(spec corev1.PodSpec, ranges []*corev1.LimitRange) corev1.PodSpec {
	spec = *spec.DeepCopy()
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			requestLimits(r)
			for _, item := range containerRanges(ranges) {
				r.Limits = withDefaults(r.Limits, item.Default)
				r.Requests = withDefaults(r.Requests, item.DefaultRequest)
			}
		}
	}
	if of := spec.Resources; of != nil && len(of.Limits) > 0 {
		sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: spec}, resourcehelper.PodResourcesOptions{})
		maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return isExtended(name) || !resourcehelper.IsSupportedPodLevelResource(name)
		})
		of.Requests = withDefaults(of.Requests, sum)
		requestLimits(of)
	}
	return spec
}

// containerRanges are what the ranges have to say of single containers.
func containerRanges(ranges []*corev1.LimitRange) []corev1.LimitRangeItem {
	var items []corev1.LimitRangeItem
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			if item.Type == corev1.LimitTypeContainer {
				items = append(items, item)
			}
		}
	}
	return items
}

func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	for name, amount := range defaults {
		if _, ok := list[name]; ok {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = amount
	}
	return list
}

// spread is a footprint as the resources of a pause pod's containers: of one, or of as many as the job's pod has where one
// would be more than a LimitRange allows a container. Equal parts are what it allows, since the job's own containers are.
func spread(f corev1.ResourceRequirements, job corev1.PodSpec, ranges []*corev1.LimitRange) []corev1.ResourceRequirements {
	n := len(job.Containers)
	for i := range job.InitContainers {
		if policy := job.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			n++
		}
	}
	if n < 2 || !exceeds(f, ranges) {
		return []corev1.ResourceRequirements{f}
	}
	parts := make([]corev1.ResourceRequirements, n)
	for i := range parts {
		parts[i] = corev1.ResourceRequirements{Requests: part(f.Requests, i, n), Limits: part(f.Limits, i, n)}
	}
	return parts
}

// exceeds says whether a container of this size is larger than a LimitRange allows one to be.
func exceeds(f corev1.ResourceRequirements, ranges []*corev1.LimitRange) bool {
	for _, item := range containerRanges(ranges) {
		for name, most := range item.Max {
			for _, list := range []corev1.ResourceList{f.Requests, f.Limits} {
				if amount, ok := list[name]; ok && amount.Cmp(most) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// part is the i-th of n parts of some amounts, which together are exactly these.
func part(list corev1.ResourceList, i, n int) corev1.ResourceList {
	if list == nil {
		return nil
	}
	parts := corev1.ResourceList{}
	for name, amount := range list {
		switch {
		case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix): // which come in whole pages
			if i == 0 {
				parts[name] = amount
			}
		case name == corev1.ResourceCPU:
			parts[name] = *resource.NewMilliQuantity(share(amount.MilliValue(), i, n), amount.Format)
		default:
			if share := share(amount.Value(), i, n); share > 0 {
				parts[name] = *resource.NewQuantity(share, amount.Format)
			}
		}
	}
	return parts
}

// share is the i-th of n parts of a number; the first ones take what is left over.
func share(whole int64, i, n int) int64 {
	share := whole / int64(n)
	if int64(i) < whole%int64(n) {
		share++
	}
	return share
}

// pauseSize makes a pause pod as large as the job's pod: its containers together are as large as those of the job, and what
// stands at the job's pod itself stands at this one.
func pauseSize(spec *corev1.PodSpec, main corev1.Container, job corev1.PodSpec, ranges []*corev1.LimitRange) {
	job = Admitted(job, ranges)
	spec.Resources = job.Resources
	for i, resources := range spread(Footprint(job), job, ranges) {
		c := *main.DeepCopy()
		if i > 0 {
			c.Name += "-" + strconv.Itoa(i+1)
		}
		c.Resources = resources
		spec.Containers = append(spec.Containers, c)
	}
}
