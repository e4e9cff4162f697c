package cli_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/pool/status"
)

func TestPausingAndDrainingOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	r, shape := somePool(t, c.namespace)
	lease := c.namespace + "/idlecount"
	anchor := c.addAnchor(t, r, shape, status.Status{Runner: "ci", Image: "registry.invalid/job:1", Want: 1, Lease: lease})
	other := r
	other.Kubernetes.Namespace, other.Token = c.namespace, "glrt-zyxwvutsrqponmlkjihg"
	second := c.addAnchor(t, other, shape, status.Status{Runner: "other", Want: 1, Lease: lease})
	annotations := func(name string) map[string]string {
		t.Helper()
		cm, err := c.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, anchor.Data[factory.AnchorStatusKey] != "", cm.Data[factory.AnchorStatusKey] != "", "the status is the manager's")
		require.NotEmpty(t, cm.Annotations[factory.AnnotationImage], "what else stands there stays")
		delete(cm.Annotations, factory.AnnotationImage)
		return cm.Annotations
	}
	none := map[string]string{}
	paused, drained := map[string]string{factory.AnnotationPaused: "true"}, map[string]string{factory.AnnotationDrained: "true"}

	t.Run("a pool without a manager is paused, with a warning", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "pause", anchor.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, "pool/"+anchor.Name+" paused\n", stdout)
		require.Equal(t, "warning: no manager runs: there is no lease "+lease+", idle pods are not refilled; start `idlecount run`\n", stderr)
		require.Equal(t, paused, annotations(anchor.Name))
		require.Equal(t, none, annotations(second.Name))
	})
	c.addLease(t, time.Now())
	t.Run("again is no error", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "pause", anchor.Name)
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "pool/"+anchor.Name+" already paused\n", stdout)
		require.Empty(t, stderr)
	})
	t.Run("status says so", func(t *testing.T) {
		_, stdout, _ := c.idlecount(t, "status", anchor.Name)
		require.Contains(t, stdout, "  -> 1 short: paused; `idlecount resume` fills the pool again\n")
		_, stdout, _ = c.idlecount(t, "status", anchor.Name, "-o", "json")
		require.Contains(t, stdout, `"paused": true`)
	})
	t.Run("to drain takes the pause back", func(t *testing.T) {
		code, stdout, _ := c.idlecount(t, "drain", "--all", "-o", "json")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, drained, annotations(anchor.Name))
		require.Equal(t, drained, annotations(second.Name))
		var list struct {
			Pools []struct {
				Namespace, Name, Mode string
				Changed               bool
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.Len(t, list.Pools, 2)
		for _, p := range list.Pools {
			require.Equal(t, "drained", p.Mode)
			require.True(t, p.Changed)
		}
	})
	t.Run("to resume takes all back, of what is named and exists", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "resume", "-A", anchor.Name, "nowhere")
		require.Equal(t, cli.ExitError, code)
		require.Equal(t, "pool/"+anchor.Name+" resumed in namespace "+c.namespace+"\n", stdout)
		require.Equal(t, "error: there is no pool or capacity \"nowhere\" in any namespace; `idlecount status -A -o name` lists those that exist\n", stderr)
		require.Equal(t, none, annotations(anchor.Name))
		require.Equal(t, drained, annotations(second.Name))
		code, stdout, _ = c.idlecount(t, "resume", "--all", "-o", "name")
		require.Equal(t, cli.ExitOK, code)
		require.ElementsMatch(t, []string{"pool/" + anchor.Name, "pool/" + second.Name}, lines(stdout))
		require.Equal(t, none, annotations(second.Name))
	})
	t.Run("all of none is said", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "drain", "--all", "-n", "kube-public")
		require.Equal(t, cli.ExitOK, code)
		require.Empty(t, stdout)
		require.Equal(t, "No pools or capacities in namespace kube-public.\n", stderr)
	})
	t.Run("by somebody who may not", func(t *testing.T) {
		code, _, stderr := c.idlecount(t, "drain", "--all", "--as", "jane")
		require.Equal(t, cli.ExitError, code)
		require.Contains(t, stderr, `User "jane" cannot list resource "configmaps"`)
	})
}
