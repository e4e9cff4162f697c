package config

import (
	"reflect"
	"slices"
	"strings"
)

// ownKeys are the keys of idlecount in [runners.kubernetes], in the order of the struct.
func ownKeys() []string {
	return slices.DeleteFunc(tags(reflect.TypeFor[Kubernetes]()), func(tag string) bool {
		return !strings.HasPrefix(tag, "idle_") && !strings.HasPrefix(tag, "scale_factor")
	})
}

// isOwn says whether a key of a table is one of idlecount's.
func isOwn(table reflect.Type, tag string) bool {
	switch table {
	case reflect.TypeFor[IdlePolicy](), reflect.TypeFor[IdleImage]():
		return true
	case reflect.TypeFor[Kubernetes]():
		return slices.Contains(ownKeys(), tag)
	}
	return false
}

// tags are the keys of a struct that is read from a TOML table.
func tags(table reflect.Type) []string {
	var list []string
	for field := range table.Fields() {
		if tag := field.Tag.Get("toml"); tag != "" && tag != "-" {
			list = append(list, tag)
		}
	}
	return list
}

// unhonoured is a key of GitLab's that decides what a job's pod is or may be, and that idlecount doesn't act on yet.
type unhonoured struct {
	key  string
	note string // what that means, where it isn't plain
}

// unhonouredKeys are the keys of [runners.kubernetes] that get a warning when they are set.
func unhonouredKeys() []unhonoured {
	list := []unhonoured{
		{key: "volumes"}, {key: "host_aliases"}, {key: "dns_policy"}, {key: "dns_config"},
		{key: "container_lifecycle"}, {key: "pod_disruption_budget"},
		{key: "use_service_account_image_pull_secrets"},
		{key: "suspend_pvc_size"}, {key: "suspend_pvc_storage_class"},
		{"helper_image_flavor", "name the image you want in helper_image"},
		{"helper_image_autoset_arch_and_os", "name the image you want in helper_image"},
		{"namespace_per_job", "pods are made in namespace"},
		{"bearer_token", "use a kubeconfig, cert_file and key_file, or the service account of the pod"},
	}
	for _, key := range overwriteKeys() {
		list = append(list, unhonoured{key, "a job can't overwrite anything"})
	}
	return list
}

// overwriteKeys let a job change its pod by variables.
func overwriteKeys() []string {
	keys := []string{
		"bearer_token_overwrite_allowed", "namespace_overwrite_allowed", "node_selector_overwrite_allowed",
		"node_tolerations_overwrite_allowed", "pod_annotations_overwrite_allowed", "pod_labels_overwrite_allowed",
		"service_account_overwrite_allowed",
	}
	for _, container := range []string{"", "helper_", "service_", "pod_"} {
		for _, resource := range []string{"cpu", "memory", "ephemeral_storage"} {
			if container == "pod_" && resource == "ephemeral_storage" {
				continue // a pod has none of its own
			}
			for _, bound := range []string{"request", "limit"} {
				keys = append(keys, container+resource+"_"+bound+"_overwrite_max_allowed")
			}
		}
	}
	return keys
}

// gitlabKeys are all keys that GitLab Runner 19.4 knows in [runners.kubernetes]. A key that is near one of ours by its
// spelling is not a mistake when GitLab knows it.
func gitlabKeys() []string {
	keys := slices.DeleteFunc(tags(reflect.TypeFor[Kubernetes]()), func(tag string) bool {
		return isOwn(reflect.TypeFor[Kubernetes](), tag)
	})
	for _, u := range unhonouredKeys() {
		keys = append(keys, u.key)
	}
	// These are about how GitLab's own executor goes about it, and leave the pod as it is.
	return append(keys, "poll_interval", "cleanup_resources_timeout", "resource_availability_check_max_attempts",
		"retry_limit", "retry_backoff_max", "retry_limits", "logs_base_dir", "scripts_base_dir", "print_pod_warning_events",
		"init_permissions_container_security_context",
		"terminationgraceperiodseconds") // of old: in whatever case
}
