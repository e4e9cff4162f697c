package config

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// security checks the security contexts of the pod and of its containers.
func (c *checker) security() {
	k := c.runner.Kubernetes
	pod := k.PodSecurityContext
	const at = "kubernetes.pod_security_context"
	c.id(at+".fs_group", pod.FSGroup)
	c.id(at+".run_as_user", pod.RunAsUser)
	c.id(at+".run_as_group", pod.RunAsGroup)
	for i := range pod.SupplementalGroups {
		c.id(fmt.Sprintf("%s.supplemental_groups[%d]", at, i), &pod.SupplementalGroups[i])
	}
	c.rootOrNot(at, pod.RunAsUser, pod.RunAsNonRoot)
	c.profiles(at, pod.SeccompProfile, pod.AppArmorProfile)
	for _, s := range []struct {
		container string
		context   ContainerSecurityContext
	}{
		{"build", k.BuildContainerSecurityContext},
		{"helper", k.HelperContainerSecurityContext},
		{"service", k.ServiceContainerSecurityContext},
	} {
		at := "kubernetes." + s.container + "_container_security_context"
		c.id(at+".run_as_user", s.context.RunAsUser)
		c.id(at+".run_as_group", s.context.RunAsGroup)
		c.rootOrNot(at, s.context.RunAsUser, s.context.RunAsNonRoot)
		c.privileges(at, s.context)
		c.profiles(at, s.context.SeccompProfile, s.context.AppArmorProfile)
		if mount := strings.TrimSpace(s.context.ProcMount); mount != "" && !strings.EqualFold(mount, "default") && !strings.EqualFold(mount, "unmasked") {
			c.wrong(at+".proc_mount", "%q is not known: use default or unmasked", s.context.ProcMount)
		}
	}
}

// id checks the number of a user or group.
func (c *checker) id(at string, id *int64) {
	if id == nil {
		return
	}
	for _, broken := range validation.IsValidUserID(*id) {
		c.wrong(at, "%d is not valid: %s", *id, broken)
	}
}

// rootOrNot finds the pod that the kubelet would refuse to start.
func (c *checker) rootOrNot(at string, user *int64, nonRoot *bool) {
	if user != nil && *user == 0 && nonRoot != nil && *nonRoot {
		c.wrong(at+".run_as_non_root", "is true, and run_as_user is 0, which is root: the kubelet would never start the container")
	}
}

// privileges finds the container that the API would refuse. A container has what the table says unless its context does.
func (c *checker) privileges(at string, context ContainerSecurityContext) {
	k := c.runner.Kubernetes
	privileged := cmp.Or(context.Privileged, k.Privileged)
	escalation := cmp.Or(context.AllowPrivilegeEscalation, k.AllowPrivilegeEscalation)
	if privileged == nil || escalation == nil || !*privileged || *escalation {
		return
	}
	const refused = "Kubernetes refuses such a container, so no pod could be made"
	switch {
	case context.AllowPrivilegeEscalation != nil:
		c.wrong(at+".allow_privilege_escalation", "is false, and the container is privileged: "+refused)
	case context.Privileged != nil:
		c.wrong(at+".privileged", "is true, and allow_privilege_escalation of [runners.kubernetes] is false: "+refused)
	default:
		c.wrong("kubernetes.allow_privilege_escalation", "is false, and privileged is true: "+refused)
	}
}

func (c *checker) profiles(at string, seccomp, appArmor Profile) {
	for _, p := range []struct {
		key     string
		profile Profile
	}{{"seccomp_profile", seccomp}, {"app_armor_profile", appArmor}} {
		key := at + "." + p.key
		switch strings.ToLower(p.profile.Type) {
		case "", "runtimedefault", "unconfined":
			if p.profile.LocalhostProfile != "" {
				c.wrong(key+".localhost_profile", `goes only with type = "Localhost"`)
			}
		case "localhost":
			if p.profile.LocalhostProfile == "" {
				c.wrong(key+".localhost_profile", `is missing: type = "Localhost" needs the profile's name on the node`)
			}
		default:
			c.wrong(key+".type", "%q is no type of profile: use RuntimeDefault, Localhost or Unconfined", p.profile.Type)
		}
	}
}
