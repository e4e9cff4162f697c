package e2e_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// clusterIsHere skips a test whose pods have to reach this process by the loopback.
func clusterIsHere(t *testing.T) {
	t.Helper()
	if os.Getenv(clustertest.KubeconfigVariable) != "" {
		t.Skip("the nodes of another cluster can't reach a registry of this process")
	}
}

func goarch() string { return runtime.GOARCH }

// TestANodeThatStopsAndComesBack has one node for real: while it is silent the pool is made anew and waits for another
// node, and says so; when it comes back it has the pods that it had, and nothing is left over.
func TestANodeThatStopsAndComesBack(t *testing.T) {
	c := clustertest.Local(t)
	s := newSite(t, settings{"idle_count": 2})
	s.startManager()
	before := uids(s.untilIdle(2))

	require.NoError(t, c.Stop(t.Context(), cluster.Kubelet))
	short := s.untilStatus("no node is left", shortOf(status.Unschedulable))
	require.NotEmpty(t, short.Shortfall.Message)
	s.until("the pods out of reach are kept, and two more wait for a node", func(pods []corev1.Pod) bool {
		return len(in(pods, factory.Warming)) == 4 && len(common(before, uids(pods))) == 2
	})

	require.NoError(t, c.Start(t.Context(), cluster.Kubelet))
	require.NoError(t, c.WaitHealthy(t.Context(), cluster.Kubelet))
	after := uids(s.untilIdle(2))
	require.NotEmpty(t, after)
	require.Eventually(t, func() bool {
		list, err := s.client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	}, patience, 200*time.Millisecond, "nothing is left over")
	s.untilStatus("nothing is short", func(st status.Status) bool { return st.Shortfall == nil })
}
