package config

import (
	"reflect"
	"strings"
)

// keyTree are the keys of a table that GitLab Runner 19.4 and idlecount know, in lower case, each with those of the table
// that it holds: nil for a value, and for a table that isn't looked into.
type keyTree map[string]keyTree

// runnerTree are the keys of [[runners]], those that older versions had included.
func runnerTree() keyTree {
	tree := treeOf(reflect.TypeFor[Runner]()).add(`
		autoscaler cache clean_git_config clone_url custom_build_dir debug_trace_disabled docker environment feature_flags
		get_sources_timeout id instance job_status_final_update_retry_limit labels machine monitoring output_limit parallels
		post_build_script post_clone_script post_get_sources_script pre_build_script pre_clone_script pre_get_sources_script
		prepare_timeout proxy_exec referees request_concurrency safe_directory_checkout slot_cgroup_template ssh
		step_runner_image strict_check_interval tls-ca-file tls-cert-file tls-key-file token_expires_at token_obtained_at
		unhealthy_interval unhealthy_requests_limit use_slot_cgroups virtualbox`)
	tree["custom"] = treeOf(reflect.TypeFor[customTable]()).add(`
		config_exec_timeout prepare_exec_timeout cleanup_exec_timeout graceful_kill_timeout force_kill_timeout`)
	kubernetes := tree["kubernetes"]
	for _, key := range gitlabKeys() {
		if _, known := kubernetes[key]; !known {
			kubernetes[key] = nil
		}
	}
	kubernetes["init_permissions_container_security_context"] = treeOf(reflect.TypeFor[ContainerSecurityContext]())
	kubernetes["services"].add("suspend_data_path")
	kubernetes["volumes"] = volumeTree()
	kubernetes["affinity"] = affinityTree()
	kubernetes["container_lifecycle"] = lifecycleTree()
	kubernetes["host_aliases"] = keysOf("ip hostnames")
	kubernetes["dns_config"] = keysOf("nameservers searches").with("options", keysOf("name value"))
	kubernetes["pod_spec"] = keysOf("name patch patch_path patch_type")
	return tree
}

func volumeTree() keyTree {
	const all = "name mount_path sub_path read_only "
	return keyTree{
		"host_path":  keysOf(all + "host_path mount_propagation"),
		"pvc":        keysOf(all + "mount_propagation"),
		"config_map": keysOf(all + "items"),
		"secret":     keysOf(all + "items"),
		"empty_dir":  keysOf(all + "medium size_limit mount_propagation"),
		"csi":        keysOf(all + "driver fs_type volume_attributes"),
		"nfs":        keysOf(all + "server path"),
	}
}

func affinityTree() keyTree {
	const required, preferred = "required_during_scheduling_ignored_during_execution", "preferred_during_scheduling_ignored_during_execution"
	expressions := keysOf("key operator values")
	nodes := keyTree{"match_expressions": expressions, "match_fields": expressions}
	labels := keyTree{"match_labels": nil, "match_expressions": expressions}
	pods := keysOf("namespaces topology_key match_label_keys mismatch_label_keys").
		with("label_selector", labels).with("namespace_selector", labels)
	ofPods := keyTree{required: pods, preferred: keysOf("weight").with("pod_affinity_term", pods)}
	return keyTree{
		"node_affinity": {
			required:  {"node_selector_terms": nodes},
			preferred: keysOf("weight").with("preference", nodes),
		},
		"pod_affinity":      ofPods,
		"pod_anti_affinity": ofPods,
	}
}

func lifecycleTree() keyTree {
	handler := keyTree{
		"exec":       keysOf("command"),
		"http_get":   keysOf("host path port scheme").with("http_headers", keysOf("name value")),
		"tcp_socket": keysOf("host port"),
	}
	return keyTree{"post_start": handler, "pre_stop": handler}
}

// treeOf are the keys of a struct that is read from a TOML table.
func treeOf(table reflect.Type) keyTree {
	tree := keyTree{}
	for field := range table.Fields() {
		tag := field.Tag.Get("toml")
		if tag == "" || tag == "-" {
			continue
		}
		t := field.Type
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		tree[tag] = nil
		if t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler()) {
			tree[tag] = treeOf(t)
		}
	}
	return tree
}

func keysOf(names string) keyTree { return keyTree{}.add(names) }

// add puts in keys that hold no table of known keys, by their names with spaces between.
func (t keyTree) add(names string) keyTree {
	for name := range strings.FieldsSeq(names) {
		t[name] = nil
	}
	return t
}

func (t keyTree) with(name string, table keyTree) keyTree {
	t[name] = table
	return t
}
