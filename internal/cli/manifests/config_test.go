package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli/manifests"
)

// TestManagerConfigMeansTheSameAndHoldsNoSecret is the whole point of ManagerConfig: the pools have the same names and
// shapes, and nothing of what must stay with GitLab Runner is in it.
func TestManagerConfigMeansTheSameAndHoldsNoSecret(t *testing.T) {
	t.Setenv("CI_TOKEN", "glrt-environmentally-friendly")
	files := []string{`
[[runners]]
  name = "docker"
  url = "https://gitlab.example.com"
  token = "glrt-dockerdockerdocker"
  executor = "docker"
[[runners]]
  name = "one"
  url = "https://gitlab.example.com"
  Token = "glrt-oneoneoneoneoneone"
  executor = "custom"
  environment = ["DEPLOY_KEY=s3cr3t-1"]
  pre_build_script = "s3cr3t-2"
  [runners.cache.s3]
    SecretKey = "s3cr3t-3"
  [runners.kubernetes]
    host = "https://10.0.0.1"
    ca_file = "/etc/ca"
    bearer_token = "s3cr3t-4"
    image = "alpine:3.22"
    helper_image = "helper:1"
    CPU_Request = "500m"
    pull_policy = ["if-not-present"]
    idle_count = 1
    idle_time = "1h"
    idle_entrypoint_image = "entrypoint:1"
    [runners.kubernetes.pod_labels]
      "example.com/team" = "ci"
    [runners.kubernetes.pod_security_context]
      run_as_user = 1000
    [[runners.kubernetes.services]]
      name = "postgres:18"
      environment = ["POSTGRES_DB=x"]
    [[runners.kubernetes.idle_policy]]
      periods = ["* 8-18 * * *"]
      timezone = "Europe/Berlin"
      idle_count = 3
      scale_factor = 0.5
[[runners]]
  name = "two"
  url = "https://gitlab.example.com"
  token = "$CI_TOKEN"
  executor = "custom"
  [runners.kubernetes]
    image = "golang:1.26"
    helper_image = "helper:1"
    idle_entrypoint_image = "entrypoint:1"
`, `
[[runners]]
  name = "two"
  token = "glrt-overrideoverride"
  [runners.kubernetes]
    idle_count = 4
    memory_request = "1Gi"
`}
	files[0] += `
[[runners]]
  name = "room"
  url = "https://gitlab.example.com"
  token = "glrt-roomroomroomroom"
  executor = "kubernetes"
  limit = 7
  environment = ["KEY=environmentally", "FF_USE_ADVANCED_POD_SPEC_CONFIGURATION=true", "TOKEN=environmentally"]
  [runners.kubernetes]
    cpu_request = "2"
    idle_strategy = "pause"
    idle_count = 3
    idle_quota_headroom = 2
    [runners.kubernetes.autoscaler]
      max_pause_pods = 5
      pause_pod_image = "pause:1"
      pause_pod_priority_class_name = "low"
    [runners.kubernetes.affinity.node_affinity.required_during_scheduling_ignored_during_execution]
      [[runners.kubernetes.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms]]
        match_expressions = [{key = "gpu", operator = "Exists"}]
    [[runners.kubernetes.pod_spec]]
      name = "device"
      patch = "containers: [{name: build, resources: {limits: {example.com/gpu: 1}}}]"
    [[runners.kubernetes.idle_image]]
      image = "big:1"
      cpu_request = "8"
`
	cfg, trimmed := loadTrimmed(t, files)
	require.Len(t, trimmed.Runners, 3)
	for n, r := range trimmed.Runners {
		before := cfg.Runners[n+1]
		require.Equal(t, before.ShortToken(), r.ShortToken())
		require.Equal(t, pools(t, before), pools(t, r))
		require.Equal(t, capacities(t, before), capacities(t, r))
		was, is := before.Kubernetes, r.Kubernetes
		was.Host, was.CAFile = "", ""
		require.Equal(t, was, is, "runner %s", r.Name)
		require.Equal(t, before.Limit, r.Limit)
	}
	contents := make([][]byte, 0, len(files))
	for _, f := range files {
		contents = append(contents, []byte(f))
	}
	out, err := manifests.ManagerConfig(cfg, contents)
	require.NoError(t, err)
	all := bytes.Join(out, nil)
	for _, secret := range []string{"s3cr3t", "oneoneoneoneone", "environmentally", "overrideover", "dockerdocker", "10.0.0.1"} {
		require.NotContains(t, string(all), secret)
	}
}

// loadTrimmed loads files, and what ManagerConfig makes of them.
func loadTrimmed(t *testing.T, files []string) (before, after *config.Config) {
	t.Helper()
	write := func(contents [][]byte) []string {
		var paths []string
		dir := t.TempDir()
		for n, c := range contents {
			path := filepath.Join(dir, string(rune('a'+n))+".toml")
			require.NoError(t, os.WriteFile(path, c, 0o600))
			paths = append(paths, path)
		}
		return paths
	}
	contents := make([][]byte, 0, len(files))
	for _, f := range files {
		contents = append(contents, []byte(f))
	}
	before, err := config.Load(write(contents))
	require.NoError(t, err)
	trimmed, err := manifests.ManagerConfig(before, contents)
	require.NoError(t, err)
	t.Setenv("CI_TOKEN", "") // the manager doesn't have it
	after, err = config.Load(write(trimmed))
	require.NoError(t, err)
	return before, after
}

// capacities are the names of a runner's capacities, and the hashes of what pause pods are made of.
func capacities(t *testing.T, r config.Runner) map[string]string {
	t.Helper()
	hashes := map[string]string{}
	if !r.KeepsCapacity() {
		return hashes
	}
	for _, image := range r.CapacityImages() {
		c, err := factory.CapacityOf(r, image, nil, patch.Apply)
		require.NoError(t, err)
		hashes[c.Name] = c.Hash()
	}
	require.Len(t, hashes, 2)
	return hashes
}

// pools are the names of a runner's pools; a name holds the runner and the shape.
func pools(t *testing.T, r config.Runner) []string {
	t.Helper()
	var names []string
	for _, image := range r.IdleImages() {
		shape, err := factory.ShapeOf(r, factory.Job{Image: image})
		require.NoError(t, err)
		names = append(names, factory.PoolName(r, shape))
	}
	return names
}
