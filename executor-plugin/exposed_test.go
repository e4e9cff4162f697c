package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

func TestExposed(t *testing.T) {
	drops := func(names ...corev1.Capability) *corev1.SecurityContext {
		return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: names}}
	}
	adds := func(names ...corev1.Capability) *corev1.SecurityContext {
		return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}, Add: names}}
	}
	always := corev1.ContainerRestartPolicyAlways
	cases := map[string]struct {
		spec corev1.PodSpec
		why  string
	}{
		"a pod of ours":                         {corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: drops("NET_RAW")}, {SecurityContext: drops("ALL")}}}, ""},
		"capabilities that hear nothing":        {corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: adds("SYS_PTRACE", "NET_BIND_SERVICE")}}}, ""},
		"the network of the node":               {corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{SecurityContext: drops("ALL")}}}, "its loopback is the node's"},
		"a privileged container":                {corev1.PodSpec{Containers: []corev1.Container{{Name: "x", SecurityContext: &corev1.SecurityContext{Privileged: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}, "container x"},
		"nothing is said":                       {corev1.PodSpec{Containers: []corev1.Container{{Name: "x"}}}, "container x"},
		"nothing of NET_RAW is said":            {corev1.PodSpec{Containers: []corev1.Container{{Name: "x", SecurityContext: drops("MKNOD")}}}, "container x"},
		"NET_RAW is given back":                 {corev1.PodSpec{Containers: []corev1.Container{{Name: "x", SecurityContext: adds("NET_RAW")}}}, "container x"},
		"the long name, in small letters":       {corev1.PodSpec{Containers: []corev1.Container{{Name: "x", SecurityContext: adds("cap_net_admin")}}}, "container x"},
		"all is added":                          {corev1.PodSpec{Containers: []corev1.Container{{Name: "x", SecurityContext: adds("ALL")}}}, "container x"},
		"the second container":                  {corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: drops("ALL")}, {Name: "x"}}}, "container x"},
		"a service":                             {corev1.PodSpec{InitContainers: []corev1.Container{{Name: "svc-0", RestartPolicy: &always, SecurityContext: adds("SYS_ADMIN")}}}, "container svc-0"},
		"an init container, which has ended":    {corev1.PodSpec{InitContainers: []corev1.Container{{Name: "istio-init", SecurityContext: adds("NET_ADMIN", "NET_RAW")}}}, ""},
		"a sidecar that somebody else put in":   {corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: drops("ALL")}, {Name: "sidecar"}}}, "container sidecar"},
		"a sidecar that can't hear what others": {corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: drops("ALL")}, {Name: "sidecar", SecurityContext: drops("ALL")}}}, ""},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			if c.why == "" {
				require.Empty(t, exposed(&c.spec))
			} else {
				require.Contains(t, exposed(&c.spec), c.why)
			}
		})
	}
}

// A pod that nothing special is configured for has a loopback of its own, or every job would be one of execs.
func TestThePodsOfAPlainConfigurationAreNotExposed(t *testing.T) {
	for sentence, c := range map[string]struct {
		change  func(k *config.Kubernetes)
		exposed bool
	}{
		"plain":              {func(*config.Kubernetes) {}, false},
		"with a service":     {func(k *config.Kubernetes) { k.Services = []config.Service{{Name: "redis:8"}} }, false},
		"not as root":        {func(k *config.Kubernetes) { k.PodSecurityContext.RunAsUser = new(int64(1000)) }, false},
		"privileged":         {func(k *config.Kubernetes) { k.Privileged = new(true) }, true},
		"NET_RAW for ping":   {func(k *config.Kubernetes) { k.CapAdd = []string{"NET_RAW"} }, true},
		"with another right": {func(k *config.Kubernetes) { k.CapAdd = []string{"SYS_PTRACE"} }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := config.Runner{Name: "ci", Token: "glrt-abcdefghi", BuildsDir: "/builds", CacheDir: "/cache", HasKubernetes: true}
			r.Kubernetes.Namespace, r.Kubernetes.Image, r.Kubernetes.HelperImage, r.Kubernetes.IdleEntrypointImage = "ci", "alpine:3", "helper:1", "entrypoint:1"
			c.change(&r.Kubernetes)
			shape, err := factory.ShapeOf(r, factory.Job{})
			require.NoError(t, err)
			pod := factory.IdlePod(r, shape, "p", 0, factory.Owner{Name: "a", UID: "u"})
			require.Equal(t, c.exposed, exposed(&pod.Spec) != "", "%s", exposed(&pod.Spec))
		})
	}
}
