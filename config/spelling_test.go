package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
)

// gitlabTables are the keys of tables that hold something; see valid-gitlab.toml for the others.
const gitlabTables = `
[kubernetes.autoscaler]
max_pause_pods = 1
pause_pod_image = "x"
pause_pod_priority_class_name = "x"
pause_pod_image_pull_secrets = ["x"]
[[kubernetes.autoscaler.policy]]
periods = ["x"]
timezone = "x"
idle_count = 1
idle_time = "1m"
scale_factor = 1.0
scale_factor_limit = 1
preemptive_mode = true
[[kubernetes.volumes.host_path]]
name = "x"
mount_path = "x"
sub_path = "x"
read_only = true
host_path = "x"
mount_propagation = "x"
[[kubernetes.volumes.pvc]]
name = "x"
mount_path = "x"
sub_path = "x"
read_only = true
mount_propagation = "x"
[[kubernetes.volumes.config_map]]
name = "x"
mount_path = "x"
sub_path = "x"
read_only = true
items = { nam = "the user's own" }
[[kubernetes.volumes.secret]]
name = "x"
items = { nam = "the user's own" }
[[kubernetes.volumes.empty_dir]]
medium = "x"
size_limit = "x"
mount_propagation = "x"
[[kubernetes.volumes.csi]]
driver = "x"
fs_type = "x"
volume_attributes = { drivr = "the user's own" }
[[kubernetes.volumes.nfs]]
server = "x"
path = "x"
[[kubernetes.host_aliases]]
ip = "x"
hostnames = ["x"]
[[kubernetes.dns_config.options]]
name = "x"
value = "x"
[kubernetes.container_lifecycle.post_start]
exec = { command = ["x"] }
tcp_socket = { host = "x", port = 1 }
[kubernetes.container_lifecycle.pre_stop]
http_get = { host = "x", path = "x", port = 1, scheme = "x", http_headers = [{ name = "x", value = "x" }] }
[[kubernetes.pod_spec]]
name = "x"
patch = "x"
patch_path = "x"
patch_type = "x"
[kubernetes.affinity.node_affinity]
required_during_scheduling_ignored_during_execution = { node_selector_terms = [{ match_expressions = [{ key = "x", operator = "x", values = ["x"] }], match_fields = [{ key = "x" }] }] }
preferred_during_scheduling_ignored_during_execution = [{ weight = 1, preference = { match_expressions = [{ key = "x" }] } }]
[kubernetes.affinity.pod_affinity]
required_during_scheduling_ignored_during_execution = [{ label_selector = { match_labels = { ky = "the user's own" }, match_expressions = [{ key = "x" }] }, namespaces = ["x"], topology_key = "x", namespace_selector = {}, match_label_keys = ["x"], mismatch_label_keys = ["x"] }]
[kubernetes.affinity.pod_anti_affinity]
preferred_during_scheduling_ignored_during_execution = [{ weight = 1, pod_affinity_term = { topology_key = "x" } }]
`

func TestKeysOfGitLabAreNeverTakenForMisspelt(t *testing.T) {
	var keys map[string]any
	_, err := toml.Decode(gitlabTables, &keys)
	require.NoError(t, err)
	require.Empty(t, newSpeller().misspelt("f", "runners[0]", keys, runnerTree()))
}

// Every key with a letter less, or with two swapped, is noticed, and nearly always the right one is named.
func TestMisspeltKeysAreFound(t *testing.T) {
	found, all := 0, 0
	var walk func(path string, tree keyTree)
	walk = func(path string, tree keyTree) {
		for key, inner := range tree {
			walk(join(path, key), inner)
			if len(key) < 4 {
				continue
			}
			for i := 0; i < len(key)-1; i += 4 {
				for _, wrong := range []string{key[:i] + key[i+1:], key[:i] + key[i+1:i+2] + key[i:i+1] + key[i+2:]} {
					if _, known := tree[wrong]; known || strings.EqualFold(wrong, key) {
						continue
					}
					all++
					list := (&speller{left: 1}).misspelt("f", path, map[string]any{wrong: 1}, tree)
					require.Len(t, list, 1, "%s.%s", path, wrong)
					if list[0].meant == key {
						found++
					}
				}
			}
		}
	}
	walk("", runnerTree())
	require.Greater(t, all, 1000)
	require.Greater(t, found, all*99/100)
}

// TestManyUnknownKeys: whatever is in a file, it takes no longer than a person waits. The first keys are looked at.
func TestManyUnknownKeys(t *testing.T) {
	s := newSpeller()
	keys := map[string]any{}
	for i := range 100_000 {
		keys[fmt.Sprintf("limt%06d", i)] = 1
	}
	keys["limt"], keys["zimit"] = 1, 1
	require.Len(t, s.misspelt("f", "runners[0]", keys, runnerTree()), 1)
	require.Negative(t, s.left)
	require.False(t, s.judges("cpu_requst"))
	require.True(t, s.judges("idel_count") || s.judges("idle_cuont"), "keys that look like ours are always judged")
}
