package factory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are quantities of resources, canonical: two amounts are equal exactly if their texts are. Empty = not set.
type Amounts struct {
	CPU              string `json:"cpu,omitempty"`
	Memory           string `json:"memory,omitempty"`
	EphemeralStorage string `json:"ephemeral_storage,omitempty"`
}

// Resources are what a container requests and may use.
type Resources struct {
	Requests Amounts `json:"requests,omitzero"`
	Limits   Amounts `json:"limits,omitzero"`
}

// quantityKeys are the keys of config.toml that make one Resources; the paths are for errors.
type quantityKeys struct {
	prefix                                         string // e.g. "runners[0].kubernetes.helper_"
	cpuRequest, cpuLimit                           string
	memoryRequest, memoryLimit                     string
	ephemeralStorageRequest, ephemeralStorageLimit string
}

func (k quantityKeys) resources() (Resources, error) {
	var r Resources
	for _, q := range []struct {
		key, written string
		format       resource.Format
		to           *string
	}{
		{"cpu_request", k.cpuRequest, resource.DecimalSI, &r.Requests.CPU},
		{"cpu_limit", k.cpuLimit, resource.DecimalSI, &r.Limits.CPU},
		{"memory_request", k.memoryRequest, resource.BinarySI, &r.Requests.Memory},
		{"memory_limit", k.memoryLimit, resource.BinarySI, &r.Limits.Memory},
		{"ephemeral_storage_request", k.ephemeralStorageRequest, resource.BinarySI, &r.Requests.EphemeralStorage},
		{"ephemeral_storage_limit", k.ephemeralStorageLimit, resource.BinarySI, &r.Limits.EphemeralStorage},
	} {
		if q.written == "" {
			continue
		}
		parsed, err := resource.ParseQuantity(q.written)
		if err != nil {
			return Resources{}, fmt.Errorf("%s%s: %q is not a quantity such as 500m or 1Gi: %w", k.prefix, q.key, q.written, err)
		}
		// The same format for all that is counted alike: "1Gi" and "1073741824" are one amount.
		*q.to = resource.NewDecimalQuantity(*parsed.AsDec(), q.format).String()
	}
	return r, nil
}

func (a Amounts) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: a.CPU, corev1.ResourceMemory: a.Memory, corev1.ResourceEphemeralStorage: a.EphemeralStorage,
	} {
		if amount != "" {
			list[name] = resource.MustParse(amount) // canonical, so parsed before
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func (r Resources) requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: r.Requests.list(), Limits: r.Limits.list()}
}
