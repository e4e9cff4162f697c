package pool

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// TestWritesMissAnAnchorThatWasMadeAnew: what was decided for one anchor isn't done to another one of the same name.
func TestWritesMissAnAnchorThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	namespace := clustertest.Namespace(t)
	counters, err := newMetrics(prometheus.NewRegistry(), clock.RealClock{})
	require.NoError(t, err)
	w := &writer{client: client, expect: newExpectations(clock.RealClock{}), metrics: counters, log: slog.New(slog.DiscardHandler)}
	anchors := client.CoreV1().ConfigMaps(namespace)
	anchor, err := anchors.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	old := anchor.DeepCopy()
	old.UID = "11111111-2222-3333-4444-555555555555"

	require.NoError(t, w.writeStatus(t.Context(), old, "{}"))
	require.NoError(t, w.deleteAnchor(t.Context(), old))
	found, err := anchors.Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, found.Data)

	require.NoError(t, w.writeStatus(t.Context(), anchor, "{}"))
	found, err = anchors.Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{factory.AnchorStatusKey: "{}"}, found.Data)
	require.NoError(t, w.deleteAnchor(t.Context(), anchor))
	require.NoError(t, w.deleteAnchor(t.Context(), anchor), "what is gone is gone")
	require.NoError(t, w.writeStatus(t.Context(), anchor, "{}"))
}
