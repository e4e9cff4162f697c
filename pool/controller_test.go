package pool

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// TestATermBeginsWithAllPoolsOfItsNamespaces: a pass that comes before both watches have shown all does nothing, so each pool
// has to get one afterwards, also those that only an anchor, or only a pod, tells of.
func TestATermBeginsWithAllPoolsOfItsNamespaces(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	namespace := clustertest.Namespace(t)
	labels := func(pool string) map[string]string { return map[string]string{factory.LabelPool: pool} }
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "anchored", Labels: labels("anchored")},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Labels: labels("cold")},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "build", Image: "job:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	watches := newCaches(client, func(_, _ string, err error) { t.Log(err) })
	ctx := t.Context()
	t.Cleanup(watches.close)
	require.NoError(t, watches.ensure(namespace))
	configured, elsewhere := key{namespace, "configured"}, key{"elsewhere", "configured"}
	c := newController(Options{Client: client, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)},
		&configs{setup: &setup{pools: map[key]*pool{configured: {}, elsewhere: {}}}}, watches, &home{}, nil, nil, nil, nil)
	c.begins(ctx, namespace, watches.of(namespace))
	asked := map[key]bool{}
	for range c.queue.Len() {
		k, _ := c.queue.Get()
		asked[k] = true
	}
	require.Equal(t, map[key]bool{
		configured: true, {namespace, "anchored"}: true, {namespace, "cold"}: true, {namespace, ""}: true,
	}, asked)
}
