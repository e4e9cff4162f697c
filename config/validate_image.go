package config

import (
	"fmt"
	"slices"
)

// overrides checks the idle_image tables.
func (c *checker) overrides() {
	list := c.runner.Kubernetes.IdleOverrides
	for i, o := range list {
		prefix := fmt.Sprintf("kubernetes.idle_image[%d]", i)
		first := slices.IndexFunc(list, func(other IdleImage) bool { return SameImage(other.Image, o.Image) })
		switch {
		case o.Image == "":
			c.wrong(prefix+".image", "is missing: it says for which image the other keys are")
		case first < i:
			c.wrong(prefix+".image", "%q has an entry already, idle_image[%d]: one must hold all keys", o.Image, first)
		default:
			c.image(prefix+".image", o.Image)
		}
		c.values(prefix+".", o.IdleCount, nil, nil, nil)
		c.serviceList(prefix+".services", o.Services)
		table, set := c.runner.Kubernetes.quantities("kubernetes."), o.quantities(prefix+".")
		for j := range set {
			c.pair(set[j], table[j])
		}
	}
}

// quantityPair is the request and the limit of one resource of one container, and the keys that they come from.
type quantityPair struct {
	prefix, name   string // "kubernetes.", "helper_cpu"
	request, limit *string
}

func (k *Kubernetes) quantities(prefix string) []quantityPair {
	return []quantityPair{
		{prefix, "cpu", &k.CPURequest, &k.CPULimit},
		{prefix, "memory", &k.MemoryRequest, &k.MemoryLimit},
		{prefix, "ephemeral_storage", &k.EphemeralStorageRequest, &k.EphemeralStorageLimit},
		{prefix, "helper_cpu", &k.HelperCPURequest, &k.HelperCPULimit},
		{prefix, "helper_memory", &k.HelperMemoryRequest, &k.HelperMemoryLimit},
		{prefix, "helper_ephemeral_storage", &k.HelperEphemeralStorageRequest, &k.HelperEphemeralStorageLimit},
		{prefix, "service_cpu", &k.ServiceCPURequest, &k.ServiceCPULimit},
		{prefix, "service_memory", &k.ServiceMemoryRequest, &k.ServiceMemoryLimit},
		{prefix, "service_ephemeral_storage", &k.ServiceEphemeralStorageRequest, &k.ServiceEphemeralStorageLimit},
		{prefix, "pod_cpu", &k.PodCPURequest, &k.PodCPULimit},
		{prefix, "pod_memory", &k.PodMemoryRequest, &k.PodMemoryLimit},
	}
}

func (o *IdleImage) quantities(prefix string) []quantityPair {
	return []quantityPair{
		{prefix, "cpu", o.CPURequest, o.CPULimit},
		{prefix, "memory", o.MemoryRequest, o.MemoryLimit},
		{prefix, "ephemeral_storage", o.EphemeralStorageRequest, o.EphemeralStorageLimit},
		{prefix, "helper_cpu", o.HelperCPURequest, o.HelperCPULimit},
		{prefix, "helper_memory", o.HelperMemoryRequest, o.HelperMemoryLimit},
		{prefix, "helper_ephemeral_storage", o.HelperEphemeralStorageRequest, o.HelperEphemeralStorageLimit},
	}
}
