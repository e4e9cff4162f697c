// Package config reads the tables that idlecount needs from GitLab Runner's config.toml: strict about idlecount's own
// keys, tolerant of all others, which keep the meaning that GitLab gives them. It reads files and nothing else.
package config

import (
	"fmt"
	"log/slog"
	"strings"
)

// Config is one or more config.toml files, merged, with defaults filled in and found valid.
type Config struct {
	Runners  []Runner
	Warnings []Problem // keys that are set and not honoured yet, unpinned images …
}

// Runner is one [[runners]] entry.
type Runner struct {
	Path          string     `toml:"-"` // where it stands, e.g. "runners[0]"
	Name          string     `toml:"name"`
	URL           string     `toml:"url"`   // $VAR and ${VAR} are expanded
	Token         string     `toml:"token"` // $VAR and ${VAR} are expanded; never to be printed, see ShortToken
	Executor      string     `toml:"executor"`
	Shell         string     `toml:"shell"`       // "bash" or "sh", default "bash"
	BuildsDir     string     `toml:"builds_dir"`  // default "/builds"
	CacheDir      string     `toml:"cache_dir"`   // default "/cache"
	Limit         int        `toml:"limit"`       // 0 = unlimited
	Environment   []string   `toml:"environment"` // NAME=value, of which only feature flags are looked at
	FeatureFlags  Flags      `toml:"feature_flags"`
	Kubernetes    Kubernetes `toml:"kubernetes"`
	HasKubernetes bool       `toml:"-"` // whether the entry has a [runners.kubernetes] table at all
	HasIdle       bool       `toml:"-"` // whether any key of idlecount is set in it
}

// Managed says whether idlecount has anything to do with the runner: its executor calls our driver and there is a table to
// shape pods by, or it has keys of ours. All others are left alone, and found valid whatever they hold.
func (r Runner) Managed() bool {
	return r.HasKubernetes && (r.Executor == ExecutorCustom || r.HasIdle)
}

// String names the runner without its token.
func (r Runner) String() string { return fmt.Sprintf("%s %q (%s)", r.Path, r.Name, r.ShortToken()) }

// LogValue keeps the token out of logs.
func (r Runner) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", r.Name), slog.String("id", r.ShortToken()))
}

// ExecutorCustom is the executor of GitLab Runner that calls a driver such as ours.
const ExecutorCustom = "custom"

// ShortToken names a runner as GitLab Runner 19 does (CI_RUNNER_SHORT_TOKEN, id-short): the first nine characters of its
// token after what says of which kind it is.
func (r Runner) ShortToken() string {
	token := withoutKind(r.Token)
	return token[:min(len(token), 9)]
}

// TokenName is the part of the token that names the runner, with what comes before it, and nothing after: a token with the
// same short token that is no credential.
func (r Runner) TokenName() string {
	kind := len(r.Token) - len(withoutKind(r.Token))
	return r.Token[:kind+len(r.ShortToken())]
}

// withoutKind cuts the prefix off a token: "glrt-" or "glrtr-", for runners that were made in GitLab or registered, with the
// partition that GitLab puts behind the first ("t1_" to "t3_"), or "GR" with seven hexadecimal digits, which is older.
func withoutKind(token string) string {
	if rest, ok := strings.CutPrefix(token, "glrtr-"); ok {
		return rest
	}
	rest := strings.TrimPrefix(token, "glrt-")
	if len(rest) >= 3 && rest[0] == 't' && rest[1] >= '1' && rest[1] <= '3' && rest[2] == '_' {
		return rest[3:]
	}
	const rotation = len("GR1348941")
	if len(rest) >= rotation && strings.HasPrefix(rest, "GR") && strings.Trim(rest[2:rotation], "0123456789abcdefABCDEF") == "" {
		return rest[rotation:]
	}
	return rest
}

// Kubernetes is [runners.kubernetes]. Quantities are kept as written; Load has found them parseable.
type Kubernetes struct {
	// Connection of the driver and the manager where no kubeconfig is given: GitLab's keys.
	Host     string `toml:"host"`
	Context  string `toml:"context"`
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	CAFile   string `toml:"ca_file"`

	Namespace   string `toml:"namespace"` // default "default"
	Image       string `toml:"image"`
	HelperImage string `toml:"helper_image"`

	CPURequest                     string `toml:"cpu_request"`
	CPULimit                       string `toml:"cpu_limit"`
	MemoryRequest                  string `toml:"memory_request"`
	MemoryLimit                    string `toml:"memory_limit"`
	EphemeralStorageRequest        string `toml:"ephemeral_storage_request"`
	EphemeralStorageLimit          string `toml:"ephemeral_storage_limit"`
	HelperCPURequest               string `toml:"helper_cpu_request"`
	HelperCPULimit                 string `toml:"helper_cpu_limit"`
	HelperMemoryRequest            string `toml:"helper_memory_request"`
	HelperMemoryLimit              string `toml:"helper_memory_limit"`
	HelperEphemeralStorageRequest  string `toml:"helper_ephemeral_storage_request"`
	HelperEphemeralStorageLimit    string `toml:"helper_ephemeral_storage_limit"`
	ServiceCPURequest              string `toml:"service_cpu_request"`
	ServiceCPULimit                string `toml:"service_cpu_limit"`
	ServiceMemoryRequest           string `toml:"service_memory_request"`
	ServiceMemoryLimit             string `toml:"service_memory_limit"`
	ServiceEphemeralStorageRequest string `toml:"service_ephemeral_storage_request"`
	ServiceEphemeralStorageLimit   string `toml:"service_ephemeral_storage_limit"`

	PullPolicy                   StringOrList      `toml:"pull_policy"` // the first that is allowed is used
	AllowedPullPolicies          []string          `toml:"allowed_pull_policies"`
	AllowedImages                []string          `toml:"allowed_images"`   // see AllowsImage
	AllowedServices              []string          `toml:"allowed_services"` // see AllowsService
	AllowedUsers                 []string          `toml:"allowed_users"`    // see AllowsUser
	AllowedGroups                []string          `toml:"allowed_groups"`   // see AllowsGroup
	ImagePullSecrets             []string          `toml:"image_pull_secrets"`
	NodeSelector                 map[string]string `toml:"node_selector"`
	NodeTolerations              map[string]string `toml:"node_tolerations"` // "key=value" or "key" -> effect
	ServiceAccount               string            `toml:"service_account"`
	AutomountServiceAccountToken *bool             `toml:"automount_service_account_token"`
	PodLabels                    map[string]string `toml:"pod_labels"`
	PodAnnotations               map[string]string `toml:"pod_annotations"`
	Affinity                     Affinity          `toml:"affinity"`
	SchedulerName                string            `toml:"scheduler_name"`
	PriorityClassName            string            `toml:"priority_class_name"`
	RuntimeClassName             string            `toml:"runtime_class_name"`

	// Of the pod as a whole (Pod .spec.resources), where the cluster has that.
	PodCPURequest    string `toml:"pod_cpu_request"`
	PodCPULimit      string `toml:"pod_cpu_limit"`
	PodMemoryRequest string `toml:"pod_memory_request"`
	PodMemoryLimit   string `toml:"pod_memory_limit"`

	PodSpec []PodSpec `toml:"pod_spec"`

	Privileged                      *bool                    `toml:"privileged"`
	AllowPrivilegeEscalation        *bool                    `toml:"allow_privilege_escalation"`
	CapAdd                          []string                 `toml:"cap_add"`
	CapDrop                         []string                 `toml:"cap_drop"`
	PodSecurityContext              PodSecurityContext       `toml:"pod_security_context"`
	BuildContainerSecurityContext   ContainerSecurityContext `toml:"build_container_security_context"`
	HelperContainerSecurityContext  ContainerSecurityContext `toml:"helper_container_security_context"`
	ServiceContainerSecurityContext ContainerSecurityContext `toml:"service_container_security_context"`

	Services []Service `toml:"services"`

	PollTimeout                      int    `toml:"poll_timeout"`                         // seconds, default 180: how long a cold pod may take to start
	CleanupGracePeriodSeconds        *int64 `toml:"cleanup_grace_period_seconds"`         // grace of the delete call
	PodTerminationGracePeriodSeconds *int64 `toml:"pod_termination_grace_period_seconds"` // in the pod's spec

	Autoscaler Autoscaler `toml:"autoscaler"`

	// Keys of idlecount.
	IdleCount           int          `toml:"idle_count"`
	IdleTime            Duration     `toml:"idle_time"`           // default 30m; 0 turns the self-exit off
	IdleImages          []string     `toml:"idle_images"`         // default [image]
	IdleStrategy        string       `toml:"idle_strategy"`       // StrategyPods, StrategyPause or StrategyBuffer
	IdlePauseCount      int          `toml:"idle_pause_count"`    // pause pods beside idle pods
	IdleQuotaHeadroom   *int         `toml:"idle_quota_headroom"` // job pods that pause pods leave room for in each quota; see QuotaHeadroom
	IdlePolicies        []IdlePolicy `toml:"idle_policy"`
	IdleOverrides       []IdleImage  `toml:"idle_image"`
	IdleLeadTime        Duration     `toml:"idle_lead_time"` // default 0: how long before its period a count rises
	ScaleFactor         float64      `toml:"scale_factor"`
	ScaleFactorLimit    int          `toml:"scale_factor_limit"`
	IdleAbandonTime     Duration     `toml:"idle_abandon_time"`     // default 10m: a claimed pod with no driver attached ends
	IdleEntrypointImage string       `toml:"idle_entrypoint_image"` // the init image with the entrypoint
}

// IdlePolicy is one [[runners.kubernetes.idle_policy]]; the last that matches wins, an absent key is inherited from the table.
type IdlePolicy struct {
	Periods          []string  `toml:"periods"`  // default: always, as in GitLab's policies
	Timezone         string    `toml:"timezone"` // default: the system's
	IdleCount        *int      `toml:"idle_count"`
	IdlePauseCount   *int      `toml:"idle_pause_count"`
	IdleTime         *Duration `toml:"idle_time"`
	ScaleFactor      *float64  `toml:"scale_factor"`
	ScaleFactorLimit *int      `toml:"scale_factor_limit"`
}

// PodSecurityContext is [runners.kubernetes.pod_security_context].
type PodSecurityContext struct {
	FSGroup            *int64  `toml:"fs_group"`
	RunAsGroup         *int64  `toml:"run_as_group"`
	RunAsUser          *int64  `toml:"run_as_user"`
	RunAsNonRoot       *bool   `toml:"run_as_non_root"`
	SupplementalGroups []int64 `toml:"supplemental_groups"`
	SELinuxType        string  `toml:"selinux_type"`
	SeccompProfile     Profile `toml:"seccomp_profile"`
	AppArmorProfile    Profile `toml:"app_armor_profile"`
}

// ContainerSecurityContext is [runners.kubernetes.build_container_security_context] and its siblings.
type ContainerSecurityContext struct {
	Capabilities struct {
		Add  []string `toml:"add"`
		Drop []string `toml:"drop"`
	} `toml:"capabilities"`
	Privileged               *bool   `toml:"privileged"`
	RunAsUser                *int64  `toml:"run_as_user"`
	RunAsGroup               *int64  `toml:"run_as_group"`
	RunAsNonRoot             *bool   `toml:"run_as_non_root"`
	ReadOnlyRootFilesystem   *bool   `toml:"read_only_root_filesystem"`
	AllowPrivilegeEscalation *bool   `toml:"allow_privilege_escalation"`
	SELinuxType              string  `toml:"selinux_type"`
	ProcMount                string  `toml:"proc_mount"`
	SeccompProfile           Profile `toml:"seccomp_profile"`
	AppArmorProfile          Profile `toml:"app_armor_profile"`
}

// Profile is a seccomp or AppArmor profile.
type Profile struct {
	Type             string `toml:"type"`
	LocalhostProfile string `toml:"localhost_profile"`
}

// Flags are those of [runners.feature_flags] that decide what a job's pod is.
type Flags struct {
	AdvancedPodSpec *bool `toml:"FF_USE_ADVANCED_POD_SPEC_CONFIGURATION"` // see FlagPodSpec
}

// PodSpec is one [[runners.kubernetes.pod_spec]]: a patch of a job's pod that GitLab's executor makes at last.
type PodSpec struct {
	Name      string `toml:"name"`
	Patch     string `toml:"patch"`      // YAML or JSON
	PatchPath string `toml:"patch_path"` // a file with the patch
	PatchType string `toml:"patch_type"` // "strategic" (default), "merge" or "json"
}

// Service is one [[runners.kubernetes.services]].
type Service struct {
	Name        string   `toml:"name"` // the image
	Alias       string   `toml:"alias"`
	Command     []string `toml:"command"`
	Entrypoint  []string `toml:"entrypoint"`
	Environment []string `toml:"environment"` // NAME=value
}
