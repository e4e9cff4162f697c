package config

import (
	"slices"
	"strings"
)

// IdleImage is one [[runners.kubernetes.idle_image]]: what differs from the table for jobs, and idle pods, with one image.
// An absent key is inherited from the table; an empty text takes away what the table sets.
type IdleImage struct {
	Image     string    `toml:"image"`
	IdleCount *int      `toml:"idle_count"` // see ScheduleFor
	Services  []Service `toml:"services"`   // instead of the table's; an empty list is none

	CPURequest                    *string `toml:"cpu_request"`
	CPULimit                      *string `toml:"cpu_limit"`
	MemoryRequest                 *string `toml:"memory_request"`
	MemoryLimit                   *string `toml:"memory_limit"`
	EphemeralStorageRequest       *string `toml:"ephemeral_storage_request"`
	EphemeralStorageLimit         *string `toml:"ephemeral_storage_limit"`
	HelperCPURequest              *string `toml:"helper_cpu_request"`
	HelperCPULimit                *string `toml:"helper_cpu_limit"`
	HelperMemoryRequest           *string `toml:"helper_memory_request"`
	HelperMemoryLimit             *string `toml:"helper_memory_limit"`
	HelperEphemeralStorageRequest *string `toml:"helper_ephemeral_storage_request"`
	HelperEphemeralStorageLimit   *string `toml:"helper_ephemeral_storage_limit"`
}

// ForImage is the runner as it is for jobs with an image: with what its idle_image says of pods, if it has one; "" is the
// image of the table. It changes no count: that is ScheduleFor's.
func (r Runner) ForImage(image string) Runner {
	if image == "" {
		image = r.Kubernetes.Image
	}
	override, ok := r.override(image)
	if !ok {
		return r
	}
	k := &r.Kubernetes
	if override.Services != nil {
		k.Services = slices.Clone(override.Services)
	}
	inherit(&k.CPURequest, override.CPURequest)
	inherit(&k.CPULimit, override.CPULimit)
	inherit(&k.MemoryRequest, override.MemoryRequest)
	inherit(&k.MemoryLimit, override.MemoryLimit)
	inherit(&k.EphemeralStorageRequest, override.EphemeralStorageRequest)
	inherit(&k.EphemeralStorageLimit, override.EphemeralStorageLimit)
	inherit(&k.HelperCPURequest, override.HelperCPURequest)
	inherit(&k.HelperCPULimit, override.HelperCPULimit)
	inherit(&k.HelperMemoryRequest, override.HelperMemoryRequest)
	inherit(&k.HelperMemoryLimit, override.HelperMemoryLimit)
	inherit(&k.HelperEphemeralStorageRequest, override.HelperEphemeralStorageRequest)
	inherit(&k.HelperEphemeralStorageLimit, override.HelperEphemeralStorageLimit)
	return r
}

// override finds the idle_image of an image.
func (r Runner) override(image string) (IdleImage, bool) {
	i := slices.IndexFunc(r.Kubernetes.IdleOverrides, func(o IdleImage) bool { return SameImage(o.Image, image) })
	if i < 0 || image == "" {
		return IdleImage{}, false
	}
	return r.Kubernetes.IdleOverrides[i], true
}

// IdleImages are the job images that idle pods are kept for: idle_images, or image where there are none, then those that
// have an idle_image of their own.
func (r Runner) IdleImages() []string {
	k := r.Kubernetes
	images := slices.Clone(k.IdleImages)
	if len(images) == 0 && k.Image != "" {
		images = append(images, k.Image)
	}
	for _, override := range k.IdleOverrides {
		known := slices.ContainsFunc(images, func(image string) bool { return SameImage(image, override.Image) })
		if override.Image != "" && !known {
			images = append(images, override.Image)
		}
	}
	return images
}

// SameImage says whether every kubelet takes two references for one image: see CanonicalImage.
func SameImage(a, b string) bool { return CanonicalImage(a) == CanonicalImage(b) }

// CanonicalImage is what references share exactly if every kubelet takes them for one image: a reference with neither tag
// nor digest means "latest". Which registry an unqualified name means is the node's business (containerd says docker.io,
// CRI-O asks its configuration), so "alpine" and "docker.io/library/alpine" are kept apart: a wrong match would run a job
// in an image that it did not ask for, a missed one costs a cold start.
func CanonicalImage(image string) string {
	// A colon before the last slash is a registry's port.
	hasTag := strings.LastIndex(image, ":") > strings.LastIndex(image, "/")
	if image == "" || hasTag || strings.Contains(image, "@") {
		return image
	}
	return image + ":latest"
}
