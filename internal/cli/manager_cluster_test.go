package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity/patch"
	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// writeBoth writes a config.toml of one runner with idle pods, for which there are KWOK nodes, and room for jobs beside them.
func writeBoth(t *testing.T, file, namespace string, idle int) config.Runner {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "custom"
  limit = 6
  [runners.kubernetes]
    namespace = %q
    image = "registry.invalid/job:1"
    helper_image = "registry.invalid/helper:1"
    idle_entrypoint_image = "registry.invalid/entrypoint:1"
    idle_count = %d
    idle_pause_count = 5
    idle_time = "1h"
    node_selector = {type = "kwok"}
    node_tolerations = {"kwok.x-k8s.io/node=fake" = "NoSchedule"}
`, namespace, idle)), 0o600))
	cfg, err := config.Load([]string{file})
	require.NoError(t, err)
	return cfg.Runners[0]
}

// run starts a manager in this process, whose lease is in a namespace.
func (c realCluster) run(t *testing.T, file, lease string) running {
	t.Helper()
	return start(t, "run", "-c", file, "--kubeconfig", c.kubeconfig, "--leader-elect-namespace", lease, "--listen-address", "127.0.0.1:0", "--log-format", "json")
}

// TestTheIdlePodsOfAManagerAndItsPausePodsShareALimit: the pools and the capacity of one manager, which know nothing of each
// other. It is not parallel, since `run` sets the logger of client-go for the whole process.
func TestTheIdlePodsOfAManagerAndItsPausePodsShareALimit(t *testing.T) {
	c := onCluster(t)
	clustertest.NeedsKWOK(t, c)
	file := filepath.Join(t.TempDir(), "config.toml")
	r := writeBoth(t, file, c.namespace, 2)
	m := c.run(t, file, c.namespace)
	there := func(idle, pauses int) func() bool {
		return func() bool {
			count := func(selector string) int {
				list, err := c.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
				if err != nil {
					t.Log(err) // not require: a condition is no place to end a test
					return -1
				}
				return len(list.Items)
			}
			return count(factory.LabelState+"="+factory.StateIdle) == idle && count(factory.LabelCapacity) == pauses
		}
	}
	await := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, is, time.Minute, 50*time.Millisecond, "%s:\n%s", what, m.log)
	}
	await("two idle pods, and pause pods for the rest", there(2, 4))
	await("ready", func() bool { code, _ := m.get("/readyz"); return code == http.StatusOK })

	writeBoth(t, file, c.namespace, 3)
	await("another idle pod takes the place of a pause pod", there(3, 3))
	shape, err := factory.ShapeOf(r, factory.Job{})
	require.NoError(t, err)
	c.addPod(t, factory.JobPod(r, shape, "job", factory.JobMeta{ID: "1", ClaimedAt: time.Now()}), true)
	await("a job takes that of another one", there(3, 2))
	_, body := m.get("/metrics")
	require.Contains(t, body, fmt.Sprintf(`idlecount_capacity_trouble{capacity="abcdefghi-pause",namespace=%q,reason="Limit",runner=%q} 1`, c.namespace, r.Name))
	writeBoth(t, file, c.namespace, 0)
	require.NoError(t, c.CoreV1().Pods(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: factory.LabelState}))
	await("without any there is room for all of it", there(0, 5))
}

// TestReadyzNamesTheCapacityOfAnotherManager, until that has gone.
func TestReadyzNamesTheCapacityOfAnotherManager(t *testing.T) {
	c := onCluster(t)
	c.addLease(t, time.Now())
	file := filepath.Join(t.TempDir(), "config.toml")
	r := writeBoth(t, file, c.namespace, 0)
	room, err := factory.CapacityOf(r, "", nil, patch.Apply)
	require.NoError(t, err)
	anchor := factory.PauseAnchor(r, room)
	anchor.Data = map[string]string{factory.AnchorStatusKey: capacitystatus.Status{Runner: "ci", Strategy: "pause", Lease: c.namespace + "/idlecount"}.Encode()}
	_, err = c.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), anchor, metav1.CreateOptions{})
	require.NoError(t, err)

	m := c.run(t, file, clustertest.Namespace(t))
	require.Eventually(t, func() bool {
		code, body := m.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body,
			"capacity "+c.namespace+"/abcdefghi-pause isn't kept: the managers of lease "+c.namespace+"/idlecount have the capacity")
	}, time.Minute, 50*time.Millisecond, "%s", m.log)
	require.NoError(t, c.CoordinationV1().Leases(c.namespace).Delete(t.Context(), "idlecount", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { code, _ := m.get("/readyz"); return code == http.StatusOK }, time.Minute, 50*time.Millisecond, "%s", m.log)
}

// TestABrokenPatchKeepsTheConfigurationBefore in force, as any broken file does, and the capacity's status says so.
func TestABrokenPatchKeepsTheConfigurationBefore(t *testing.T) {
	c := onCluster(t)
	file := filepath.Join(t.TempDir(), "config.toml")
	write := func(idle int, patch string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "kubernetes"
  feature_flags = {FF_USE_ADVANCED_POD_SPEC_CONFIGURATION = true}
  [runners.kubernetes]
    namespace = %q
    cpu_request = "1"
    idle_strategy = "pause"
    idle_count = %d
    idle_entrypoint_image = "registry.invalid/entrypoint:1"
    node_selector = {"idlecount.dev/test" = "none"}
    [[runners.kubernetes.pod_spec]]
      patch = %q
`, c.namespace, idle, patch)), 0o600))
	}
	write(2, "{}")
	m := c.run(t, file, c.namespace)
	held := func() capacitystatus.Status {
		anchor, err := c.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "abcdefghi-pause", metav1.GetOptions{})
		if err != nil {
			return capacitystatus.Status{}
		}
		s, err := capacitystatus.Of(anchor)
		require.NoError(t, err)
		return s
	}
	await := func(what string, is func(capacitystatus.Status) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return is(held()) }, time.Minute, 50*time.Millisecond, "%s:\n%s", what, m.log)
	}
	await("room for two", func(s capacitystatus.Status) bool { return s.Hold == 2 && s.ConfigError == "" })
	write(5, "nodeSelector: 5")
	says := file + ": runners[0].kubernetes.pod_spec[0].patch: makes no pod of the pod of a job"
	await("it stays, and its status says why", func(s capacitystatus.Status) bool {
		return s.Hold == 2 && s.Trouble == nil && strings.Contains(s.ConfigError, says)
	})
	_, body := m.get("/metrics")
	require.Contains(t, body, "idlecount_config_last_reload_successful 0")
	require.Contains(t, m.log.String(), "the configuration before stays in force")
	code, _, stderr := idlecount(t.Context(), "status", "-n", c.namespace, "--kubeconfig", c.kubeconfig)
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "warning: the manager can't use its configuration as it is now and goes on with the one before: "+says)
	write(3, "{}")
	await("mended", func(s capacitystatus.Status) bool { return s.Hold == 3 && s.ConfigError == "" })
}
