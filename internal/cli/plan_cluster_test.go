package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/pool/status"
)

func TestPlanOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	file := writeConfig(t, c.namespace)
	r, shape := somePool(t, c.namespace)
	t.Run("a pool that isn't there", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "plan", "-c", file)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, []string{c.namespace, factory.PoolName(r, shape), "registry.invalid/job:1", "default", "1", "0", "0", "0", "0", "1", "0"}, strings.Fields(lines(stdout)[1]))
		require.Equal(t, "  -> the pool is new", lines(stdout)[2])
		require.Equal(t, "1 pool: 1 pod to create, 0 to delete\n", stderr)
		made, err := c.CoreV1().ConfigMaps(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelPool})
		require.NoError(t, err)
		require.Empty(t, made.Items)
	})
	t.Run("a pool of other managers", func(t *testing.T) {
		c.addAnchor(t, r, shape, status.Status{Runner: "ci", Lease: "other/idlecount"})
		_, stdout, _ := c.idlecount(t, "plan", "-c", file, "--leader-elect-namespace", c.namespace)
		require.Contains(t, stdout, "  -> the managers of lease other/idlecount have the pool; it would be taken from them\n")
		_, stdout, _ = c.idlecount(t, "plan", "-c", file, "-o", "json")
		require.NotContains(t, stdout, "taken_from", "the lease that the pools name is the one that is meant")
		require.Contains(t, stdout, `"create": 1`)
	})
	t.Run("by somebody who may not look", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "plan", "-c", file, "--as", "jane")
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `User "jane" cannot list resource "configmaps"`)
	})
}
