package main

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// exposed says why somebody else could listen to what passes over the loopback of a pod, "" where nobody can. Scripts hold
// secrets of the job, and on the loopback they aren't encrypted, so such a pod gets them by exec.
func exposed(spec *corev1.PodSpec) string {
	if spec.HostNetwork {
		return "its loopback is the node's"
	}
	for i := range spec.InitContainers {
		// Others have ended before anything listens.
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && eavesdrops(c.SecurityContext) {
			return "container " + c.Name + " may listen to all that the pod sends"
		}
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; eavesdrops(c.SecurityContext) {
			return "container " + c.Name + " may listen to all that the pod sends"
		}
	}
	return ""
}

// eavesdrops is true for a container that can open raw sockets, or divert connections. Container runtimes grant NET_RAW to
// those that don't drop it.
func eavesdrops(s *corev1.SecurityContext) bool {
	if s == nil || s.Capabilities == nil || s.Privileged != nil && *s.Privileged {
		return true
	}
	dropped := slices.ContainsFunc(s.Capabilities.Drop, func(c corev1.Capability) bool {
		return slices.Contains([]string{"ALL", "NET_RAW"}, bare(c))
	})
	added := slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool {
		return slices.Contains([]string{"ALL", "NET_RAW", "NET_ADMIN", "SYS_ADMIN", "BPF"}, bare(c))
	})
	return !dropped || added
}

// bare is the name of a capability as Kubernetes writes it.
func bare(c corev1.Capability) string { return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") }
