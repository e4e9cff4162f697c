package factory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
)

// Security is a container's security context, resolved: GitLab's defaults, the runner's keys, the container's own table.
type Security struct {
	CapAdd                   []string `json:"cap_add,omitempty"` // sorted
	CapDrop                  []string `json:"cap_drop,omitempty"`
	Privileged               *bool    `json:"privileged,omitempty"`
	RunAsUser                *int64   `json:"run_as_user,omitempty"`
	RunAsGroup               *int64   `json:"run_as_group,omitempty"`
	RunAsNonRoot             *bool    `json:"run_as_non_root,omitempty"`
	ReadOnlyRootFilesystem   *bool    `json:"read_only_root_filesystem,omitempty"`
	AllowPrivilegeEscalation *bool    `json:"allow_privilege_escalation,omitempty"`
	SELinuxType              string   `json:"selinux_type,omitempty"`
	ProcMount                string   `json:"proc_mount,omitempty"`
	Seccomp                  Profile  `json:"seccomp,omitzero"`
	AppArmor                 Profile  `json:"app_armor,omitzero"`
}

// PodSecurity is the pod's security context.
type PodSecurity struct {
	FSGroup            *int64  `json:"fs_group,omitempty"`
	RunAsUser          *int64  `json:"run_as_user,omitempty"`
	RunAsGroup         *int64  `json:"run_as_group,omitempty"`
	RunAsNonRoot       *bool   `json:"run_as_non_root,omitempty"`
	SupplementalGroups []int64 `json:"supplemental_groups,omitempty"`
	SELinuxType        string  `json:"selinux_type,omitempty"`
	Seccomp            Profile `json:"seccomp,omitzero"`
	AppArmor           Profile `json:"app_armor,omitzero"`
}

// Profile is a seccomp or AppArmor profile, in the API's words.
type Profile struct {
	Type      string `json:"type,omitempty"`
	Localhost string `json:"localhost,omitempty"`
}

const (
	allCapabilities = "ALL"
	netRaw          = "NET_RAW"          // GitLab drops it from every Linux container
	netBindService  = "NET_BIND_SERVICE" // the one that Pod Security `restricted` lets a container add
)

// podSecurity resolves [runners.kubernetes.pod_security_context]; path names it in errors.
func podSecurity(path string, c config.PodSecurityContext) (PodSecurity, error) {
	seccomp, err := profile(path+".seccomp_profile", c.SeccompProfile)
	if err != nil {
		return PodSecurity{}, err
	}
	appArmor, err := profile(path+".app_armor_profile", c.AppArmorProfile)
	if err != nil {
		return PodSecurity{}, err
	}
	return PodSecurity{
		FSGroup:            clone(c.FSGroup),
		RunAsUser:          clone(c.RunAsUser),
		RunAsGroup:         clone(c.RunAsGroup),
		RunAsNonRoot:       clone(c.RunAsNonRoot),
		SupplementalGroups: slices.Clone(c.SupplementalGroups),
		SELinuxType:        c.SELinuxType,
		Seccomp:            seccomp,
		AppArmor:           appArmor,
	}, nil
}

// containerSecurity resolves one container's security context from the runner's keys and the container's own table, whose
// path it gets for errors.
func containerSecurity(path string, k *config.Kubernetes, pod PodSecurity, c config.ContainerSecurityContext) (Security, error) {
	seccomp, err := profile(path+".seccomp_profile", c.SeccompProfile)
	if err != nil {
		return Security{}, err
	}
	appArmor, err := profile(path+".app_armor_profile", c.AppArmorProfile)
	if err != nil {
		return Security{}, err
	}
	procMount, err := procMount(path+".proc_mount", c.ProcMount)
	if err != nil {
		return Security{}, err
	}
	s := Security{
		Privileged:               clone(first(c.Privileged, k.Privileged)),
		AllowPrivilegeEscalation: clone(first(c.AllowPrivilegeEscalation, k.AllowPrivilegeEscalation)),
		RunAsUser:                clone(c.RunAsUser),
		RunAsGroup:               clone(c.RunAsGroup),
		RunAsNonRoot:             clone(c.RunAsNonRoot),
		ReadOnlyRootFilesystem:   clone(c.ReadOnlyRootFilesystem),
		SELinuxType:              c.SELinuxType,
		ProcMount:                procMount,
		Seccomp:                  seccomp,
		AppArmor:                 appArmor,
	}
	s.CapAdd, s.CapDrop = capabilities(k.CapAdd, k.CapDrop)
	if c.Capabilities.Add != nil {
		s.CapAdd = set(c.Capabilities.Add)
	}
	if c.Capabilities.Drop != nil {
		s.CapDrop = set(c.Capabilities.Drop)
	}
	dropConfigured := len(k.CapDrop) > 0 || c.Capabilities.Drop != nil
	return s.completed(pod, dropConfigured), nil
}

// capabilities are those of cap_add and cap_drop over GitLab's default of dropping NET_RAW: adding a capability takes it
// from the dropped ones, dropping it from the added ones.
func capabilities(capAdd, capDrop []string) (add, drop []string) {
	added := map[string]bool{netRaw: false}
	for _, c := range capAdd {
		added[c] = true
	}
	for _, c := range capDrop {
		added[c] = false
	}
	for c, yes := range added {
		if yes {
			add = append(add, c)
		} else {
			drop = append(drop, c)
		}
	}
	return set(add), set(drop)
}

// completed fills in what Pod Security `restricted` asks for and the configuration is silent about, in a container that
// the configuration makes run as a user other than root. Whoever says so wants a locked container, and would otherwise
// have to spell four more keys for each of three containers. A container that restricted would refuse in any case, since
// the configuration asks for more, is left exactly as configured.
func (s Security) completed(pod PodSecurity, dropConfigured bool) Security {
	user, nonRoot := first(s.RunAsUser, pod.RunAsUser), first(s.RunAsNonRoot, pod.RunAsNonRoot)
	seccomp := s.Seccomp.Type
	if seccomp == "" {
		seccomp = pod.Seccomp.Type
	}
	runsAsOther := is(nonRoot, true) || user != nil && *user != 0
	runsAsRoot := is(nonRoot, false) || user != nil && *user == 0
	unconfined := seccomp == string(corev1.SeccompProfileTypeUnconfined)
	if !runsAsOther || runsAsRoot || unconfined || s.asksForMore(dropConfigured) {
		return s
	}
	s.AllowPrivilegeEscalation = new(false)
	s.CapDrop = []string{allCapabilities}
	if nonRoot == nil {
		s.RunAsNonRoot = new(true)
	}
	if seccomp == "" {
		s.Seccomp.Type = string(corev1.SeccompProfileTypeRuntimeDefault)
	}
	return s
}

// asksForMore says whether the container is configured to have what Pod Security `restricted` never grants.
func (s Security) asksForMore(dropConfigured bool) bool {
	return is(s.Privileged, true) || is(s.AllowPrivilegeEscalation, true) ||
		slices.ContainsFunc(s.CapAdd, func(c string) bool { return c != netBindService }) ||
		dropConfigured && !slices.Contains(s.CapDrop, allCapabilities) ||
		s.ProcMount == string(corev1.UnmaskedProcMount)
}

// withUser is the container as the user that a job asks for (image:kubernetes:user). What the configuration says about
// users comes first, as with GitLab; so does it where the job's text isn't "uid[:gid]", and a user or group that isn't
// allowed is left out (see Warnings).
func (s Security) withUser(user string, pod PodSecurity, k *config.Kubernetes) Security {
	uid, gid, err := ParseUser(user)
	if err != nil {
		return s
	}
	if first(s.RunAsUser, pod.RunAsUser) == nil && uid != nil && k.AllowsUser(*uid) {
		s.RunAsUser = uid
	}
	if first(s.RunAsGroup, pod.RunAsGroup) == nil && gid != nil && k.AllowsGroup(*gid) {
		s.RunAsGroup = gid
	}
	return s
}

func (s Security) context() *corev1.SecurityContext {
	c := &corev1.SecurityContext{
		Privileged:               clone(s.Privileged),
		RunAsUser:                clone(s.RunAsUser),
		RunAsGroup:               clone(s.RunAsGroup),
		RunAsNonRoot:             clone(s.RunAsNonRoot),
		ReadOnlyRootFilesystem:   clone(s.ReadOnlyRootFilesystem),
		AllowPrivilegeEscalation: clone(s.AllowPrivilegeEscalation),
		SELinuxOptions:           seLinux(s.SELinuxType),
		SeccompProfile:           s.Seccomp.seccomp(),
		AppArmorProfile:          s.AppArmor.appArmor(),
	}
	if s.ProcMount != "" {
		c.ProcMount = new(corev1.ProcMountType(s.ProcMount))
	}
	if len(s.CapAdd)+len(s.CapDrop) > 0 {
		c.Capabilities = &corev1.Capabilities{}
		for _, name := range s.CapAdd {
			c.Capabilities.Add = append(c.Capabilities.Add, corev1.Capability(name))
		}
		for _, name := range s.CapDrop {
			c.Capabilities.Drop = append(c.Capabilities.Drop, corev1.Capability(name))
		}
	}
	return c
}

func (s PodSecurity) context() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		FSGroup:            clone(s.FSGroup),
		RunAsUser:          clone(s.RunAsUser),
		RunAsGroup:         clone(s.RunAsGroup),
		RunAsNonRoot:       clone(s.RunAsNonRoot),
		SupplementalGroups: slices.Clone(s.SupplementalGroups),
		SELinuxOptions:     seLinux(s.SELinuxType),
		SeccompProfile:     s.Seccomp.seccomp(),
		AppArmorProfile:    s.AppArmor.appArmor(),
	}
}

// initSecurity is the security context of the init container: valid under Pod Security `restricted` whatever the job's
// containers are allowed. The image's own user is not root; one is named only where the pod's would be, since clusters
// that choose the users themselves (OpenShift) refuse a pod that names one.
func initSecurity(pod PodSecurity) *corev1.SecurityContext {
	s := Security{
		CapDrop:                  []string{allCapabilities},
		RunAsNonRoot:             new(true),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Seccomp:                  Profile{Type: string(corev1.SeccompProfileTypeRuntimeDefault)},
	}
	if pod.RunAsUser != nil && *pod.RunAsUser == 0 {
		s.RunAsUser = new(int64(initUser))
	}
	return s.context()
}

// initUser is the user of the init image.
const initUser = 65532

// profile reads a profile's type in any case; path names it in errors.
func profile(path string, p config.Profile) (Profile, error) {
	for _, known := range []string{"", "RuntimeDefault", "Localhost", "Unconfined"} {
		if strings.EqualFold(p.Type, known) {
			return Profile{Type: known, Localhost: p.LocalhostProfile}, nil
		}
	}
	return Profile{}, fmt.Errorf("%s.type: %q is no type of profile; use RuntimeDefault, Localhost or Unconfined", path, p.Type)
}

func (p Profile) localhost() *string {
	if p.Localhost == "" {
		return nil
	}
	return new(p.Localhost)
}

func (p Profile) seccomp() *corev1.SeccompProfile {
	if p.Type == "" {
		return nil
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileType(p.Type), LocalhostProfile: p.localhost()}
}

func (p Profile) appArmor() *corev1.AppArmorProfile {
	if p.Type == "" {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileType(p.Type), LocalhostProfile: p.localhost()}
}

func procMount(path, written string) (string, error) {
	for _, known := range []corev1.ProcMountType{"", corev1.DefaultProcMount, corev1.UnmaskedProcMount} {
		if strings.EqualFold(strings.TrimSpace(written), string(known)) {
			return string(known), nil
		}
	}
	return "", fmt.Errorf("%s: %q is not known; use default or unmasked", path, written)
}

func seLinux(typ string) *corev1.SELinuxOptions {
	if typ == "" {
		return nil
	}
	return &corev1.SELinuxOptions{Type: typ}
}

func set(names []string) []string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// first is the first of two settings that is made.
func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func is(setting *bool, value bool) bool { return setting != nil && *setting == value }

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
