package cluster_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// pollInterval is for what can't be watched.
const pollInterval = 50 * time.Millisecond

func TestUpKeepsARunningCluster(t *testing.T) {
	c := clustertest.Local(t)
	before := pids(t)
	// By default up leaves KWOK nodes alone too.
	again, err := cluster.Up(within(t, patience), cluster.Options{Folder: filepath.Dir(c.Kubeconfig())})
	require.NoError(t, err)
	require.Equal(t, c.Kubeconfig(), again.Kubeconfig())
	require.Equal(t, before, pids(t))
}

func pids(t *testing.T) map[cluster.Component]int {
	t.Helper()
	status, err := cluster.ReadStatus(t.Context(), cluster.Options{})
	require.NoError(t, err)
	require.Equal(t, cluster.Running, status.State, "%+v", status)
	found := map[cluster.Component]int{}
	for _, component := range status.Components {
		found[component.Component] = component.PID
	}
	return found
}

func TestAClusterWhoseComponentsDiedIsRepairedAndItsPodsGoOn(t *testing.T) {
	c := clustertest.Local(t)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := running(t, client, namespace, probePod(probeReference(t, c)))
	before := pids(t)

	for component := range before {
		require.NoError(t, c.Kill(t.Context(), component))
	}
	_, err = cluster.Find(t.Context())
	require.ErrorIs(t, err, cluster.ErrNotRunning)
	require.NoError(t, c.Repair(within(t, 2*time.Minute)))

	after := pids(t)
	for component, pid := range before {
		require.NotEqual(t, pid, after[component], component)
	}
	requireUntouched(t, client, pod)
	var out string
	require.Eventually(t, func() bool { // the kubelet is healthy before it knows its pods
		out, err = execIn(t.Context(), config, namespace, pod.Name, "/pause", "api", "/api")
		return err == nil && out == "200 /api"
	}, patience, pollInterval, "%s %v", out, err)
}

// requireUntouched fails if the pod's container was restarted or is not running.
func requireUntouched(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	now, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.UID, now.UID)
	require.Equal(t, pod.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	require.Zero(t, now.Status.ContainerStatuses[0].RestartCount)
	require.NotNil(t, now.Status.ContainerStatuses[0].State.Running)
}

func TestAComponentThatHangsIsReplaced(t *testing.T) {
	c := clustertest.Local(t)
	before := pids(t)
	scheduler, err := os.FindProcess(before[cluster.Scheduler])
	require.NoError(t, err)
	require.NoError(t, scheduler.Signal(stopSignal))
	require.NoError(t, c.Repair(within(t, 2*time.Minute)))
	require.NotEqual(t, before[cluster.Scheduler], pids(t)[cluster.Scheduler])
}

func TestStopStartAndRestart(t *testing.T) {
	c := clustertest.Local(t)
	ctx := within(t, 2*time.Minute)
	before := pids(t)

	require.NoError(t, c.Stop(ctx, cluster.Scheduler))
	require.NoError(t, c.Stop(ctx, cluster.Scheduler), "what does not run may be stopped again")
	status, err := cluster.ReadStatus(ctx, cluster.Options{})
	require.NoError(t, err)
	require.Equal(t, cluster.Degraded, status.State)
	waiting, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorContains(t, c.WaitHealthy(waiting, cluster.Scheduler), c.LogFile(cluster.Scheduler))

	require.NoError(t, c.Start(ctx, cluster.Scheduler))
	require.NoError(t, c.WaitHealthy(ctx))
	started := pids(t)
	require.NoError(t, c.Start(ctx, cluster.Scheduler), "what runs may be started again")
	require.Equal(t, started, pids(t))

	require.NoError(t, c.Restart(ctx, cluster.Scheduler))
	after := pids(t)
	require.NotEqual(t, started[cluster.Scheduler], after[cluster.Scheduler])
	require.Equal(t, before[cluster.Etcd], after[cluster.Etcd], "the others are left alone")
}

func TestARestartOfTheAPIServerEndsStreamsAndKeepsPods(t *testing.T) {
	c := clustertest.Local(t)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := running(t, client, namespace, probePod(probeReference(t, c)))

	ended := counting(t, config, namespace, pod.Name)
	require.NoError(t, c.Restart(within(t, 2*time.Minute), cluster.APIServer))
	select {
	case err := <-ended:
		t.Logf("the stream ended with: %v", err)
	case <-time.After(patience):
		require.Fail(t, "the stream went on without its API server")
	}
	requireUntouched(t, client, pod)
	out, err := execIn(within(t, patience), config, namespace, pod.Name, "/pause", "api", "/api")
	require.NoError(t, err, out)
	require.Equal(t, "200 /api", out)
}

func TestCutConnectionsResetsWhatIsOpenAndNothingElse(t *testing.T) {
	c := clustertest.Local(t)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := running(t, client, namespace, probePod(probeReference(t, c)))
	before := pids(t)

	ended := counting(t, config, namespace, pod.Name)
	count, err := c.CutConnections(t.Context())
	require.NoError(t, err)
	require.Positive(t, count)
	select {
	case err := <-ended:
		require.Error(t, err, "a stream that was cut is not one that ended")
	case <-time.After(patience):
		require.Fail(t, "the stream was not cut")
	}
	require.Equal(t, before, pids(t))
	requireUntouched(t, clientset(t, config), pod)
	out, err := execIn(within(t, patience), config, namespace, pod.Name, "/pause", "api", "/api")
	require.NoError(t, err, out)
}

// counting starts an exec that prints lines for ever and returns once some have come. The channel gets its end.
func counting(t *testing.T, config *rest.Config, namespace, pod string) <-chan error {
	t.Helper()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	ctx := within(t, 5*time.Minute)
	go func() {
		err := stream(ctx, config, namespace, pod, remotecommand.StreamOptions{Stdout: writer}, "/pause", "count")
		writer.Close()
		ended <- err
	}()
	_, err := io.ReadFull(reader, make([]byte, 100))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	return ended
}
