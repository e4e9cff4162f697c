package factory

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
)

func TestSecurityOfTheBuildContainer(t *testing.T) {
	caps := func(add, drop []corev1.Capability) *corev1.Capabilities {
		return &corev1.Capabilities{Add: add, Drop: drop}
	}
	netRaw, all := []corev1.Capability{"NET_RAW"}, []corev1.Capability{"ALL"}
	runtimeDefault := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	locked := func(change func(*corev1.SecurityContext)) corev1.SecurityContext {
		c := corev1.SecurityContext{
			Capabilities: caps(nil, all), AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), SeccompProfile: runtimeDefault,
		}
		change(&c)
		return c
	}
	type change = func(k *config.Kubernetes, c *config.ContainerSecurityContext)
	for name, c := range map[string]struct {
		change change
		job    string
		want   corev1.SecurityContext
	}{
		"NET_RAW is dropped where nothing is said": {
			func(*config.Kubernetes, *config.ContainerSecurityContext) {}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw)},
		},
		"cap_add brings NET_RAW back": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.CapAdd = []string{"NET_RAW", "CHOWN"}
			}, "",
			corev1.SecurityContext{Capabilities: caps([]corev1.Capability{"CHOWN", "NET_RAW"}, nil)},
		},
		"cap_drop wins over cap_add": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.CapAdd, k.CapDrop = []string{"CHOWN"}, []string{"CHOWN", "MKNOD"}
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, []corev1.Capability{"CHOWN", "MKNOD", "NET_RAW"})},
		},
		"the container's table replaces the list that it names, and only that": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.CapAdd, c.Capabilities.Drop = []string{"CHOWN"}, []string{"MKNOD"}
			}, "",
			corev1.SecurityContext{Capabilities: caps([]corev1.Capability{"CHOWN"}, []corev1.Capability{"MKNOD"})},
		},
		"an empty list in the container's table is a list": {
			func(_ *config.Kubernetes, c *config.ContainerSecurityContext) { c.Capabilities.Drop = []string{} }, "",
			corev1.SecurityContext{},
		},
		"the container's flags win over the runner's": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.Privileged, k.AllowPrivilegeEscalation = new(true), new(false)
				c.Privileged, c.AllowPrivilegeEscalation = new(false), new(true)
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), Privileged: new(false), AllowPrivilegeEscalation: new(true)},
		},
		"a user for the pod locks the container": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser = new(int64(1000))
			}, "",
			locked(func(*corev1.SecurityContext) {}),
		},
		"run_as_non_root for the pod locks the container, and is not said twice": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsNonRoot = new(true)
			}, "",
			locked(func(c *corev1.SecurityContext) { c.RunAsNonRoot = nil }),
		},
		"a user for the container locks it": {
			func(_ *config.Kubernetes, c *config.ContainerSecurityContext) { c.RunAsUser = new(int64(1000)) }, "",
			locked(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(1000)) }),
		},
		"a container of root's is not locked by the pod's user": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, c.RunAsUser = new(int64(1000)), new(int64(0))
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), RunAsUser: new(int64(0))},
		},
		"NET_BIND_SERVICE may be added to a locked container": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsNonRoot, k.CapAdd = new(true), []string{"NET_BIND_SERVICE"}
			}, "",
			locked(func(c *corev1.SecurityContext) {
				c.RunAsNonRoot, c.Capabilities.Add = nil, []corev1.Capability{"NET_BIND_SERVICE"}
			}),
		},
		"another capability means that the operator doesn't want a locked container": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsNonRoot, k.CapAdd = new(true), []string{"SYS_PTRACE"}
			}, "",
			corev1.SecurityContext{Capabilities: caps([]corev1.Capability{"SYS_PTRACE"}, netRaw)},
		},
		"so does a list of dropped ones without ALL": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsNonRoot, c.Capabilities.Drop = new(true), []string{"MKNOD"}
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, []corev1.Capability{"MKNOD"})},
		},
		"and allow_privilege_escalation, which sudo needs": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, k.AllowPrivilegeEscalation = new(int64(1000)), new(true)
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), AllowPrivilegeEscalation: new(true)},
		},
		"and privileged": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, k.Privileged = new(int64(1000)), new(true)
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), Privileged: new(true)},
		},
		"and an unconfined profile of the pod": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, k.PodSecurityContext.SeccompProfile.Type = new(int64(1000)), "Unconfined"
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw)},
		},
		"a profile of the pod is not said twice": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, k.PodSecurityContext.SeccompProfile.Type = new(int64(1000)), "RuntimeDefault"
			}, "",
			locked(func(c *corev1.SecurityContext) { c.SeccompProfile = nil }),
		},
		"and an unmasked /proc": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, c.ProcMount = new(int64(1000)), "unmasked"
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), ProcMount: new(corev1.UnmaskedProcMount)},
		},
		"run_as_non_root = false is an answer": {
			func(k *config.Kubernetes, c *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser, c.RunAsNonRoot = new(int64(1000)), new(false)
			}, "",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), RunAsNonRoot: new(false)},
		},
		"the job's user where the configuration names none": {
			func(*config.Kubernetes, *config.ContainerSecurityContext) {}, "1000:1001",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1001))},
		},
		"the job's group beside the configuration's user": {
			func(k *config.Kubernetes, _ *config.ContainerSecurityContext) {
				k.PodSecurityContext.RunAsUser = new(int64(0))
			}, "1000:1001",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw), RunAsGroup: new(int64(1001))},
		},
		"no user of the job's that isn't a number": {
			func(*config.Kubernetes, *config.ContainerSecurityContext) {}, "1000:staff",
			corev1.SecurityContext{Capabilities: caps(nil, netRaw)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := load(t, "minimal")
			c.change(&r.Kubernetes, &r.Kubernetes.BuildContainerSecurityContext)
			s := shapeOf(t, r, Job{User: c.job})
			pod := IdlePod(r, s, "pod", 0, testAnchor)
			require.Equal(t, c.want, *pod.Spec.Containers[0].SecurityContext)
		})
	}
}

func TestTheJobsUserIsForBuildAlone(t *testing.T) {
	r := load(t, "minimal")
	pod := JobPod(r, shapeOf(t, r, Job{User: "1000"}), "pod", testMeta())
	require.Equal(t, int64(1000), *pod.Spec.Containers[0].SecurityContext.RunAsUser)
	require.Nil(t, pod.Spec.Containers[1].SecurityContext.RunAsUser)
}

func TestTheInitContainerIsLockedWhateverTheOthersMay(t *testing.T) {
	for name := range shapes {
		r := load(t, name)
		c := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor).Spec.InitContainers[0]
		require.Equal(t, InitContainer, c.Name)
		require.Equal(t, &corev1.SecurityContext{
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			RunAsNonRoot:             new(true),
			ReadOnlyRootFilesystem:   new(true),
			AllowPrivilegeEscalation: new(false),
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, c.SecurityContext, name)
	}
	r := load(t, "minimal")
	r.Kubernetes.PodSecurityContext.RunAsUser = new(int64(0))
	c := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor).Spec.InitContainers[0]
	require.Equal(t, int64(65532), *c.SecurityContext.RunAsUser, "it would inherit root, which it refuses to run as")
}

func TestParseUser(t *testing.T) {
	id := func(n int64) *int64 { return &n }
	for text, want := range map[string][2]*int64{
		"": {}, ":": {}, "0": {id(0), nil}, "1000": {id(1000), nil}, "1000:": {id(1000), nil}, ":5": {nil, id(5)}, "1000:0": {id(1000), id(0)},
	} {
		uid, gid, err := ParseUser(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]*int64{uid, gid}, text)
	}
	for text, message := range map[string]string{
		"root":                 `user "root": "root" is not a numeric id`,
		"-1":                   `user "-1": "-1" is not a numeric id`,
		"0:wheel":              `group of user "0:wheel": "wheel" is not a numeric id`,
		"1:2:3":                `group of user "1:2:3": "2:3" is not a numeric id`,
		"99999999999999999999": `user "99999999999999999999": "99999999999999999999" is not a numeric id`,
	} {
		_, _, err := ParseUser(text)
		require.EqualError(t, err, message)
	}
}
