package cluster_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// patience bounds each wait: much longer than anything here takes.
const patience = time.Minute

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// localConfig returns a configuration of the local cluster for tests that look at what only it has.
func localConfig(t *testing.T) (*cluster.Cluster, *rest.Config) {
	t.Helper()
	if os.Getenv(clustertest.KubeconfigVariable) != "" {
		t.Skipf("%s names another cluster, this is about the local one", clustertest.KubeconfigVariable)
	}
	config := clustertest.RestConfig(t)
	c, err := cluster.Find(t.Context())
	require.NoError(t, err)
	return c, config
}

// probeReference publishes an image with the probe and returns its name.
func probeReference(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "probe")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	image, err := cluster.ImageOf(program)
	require.NoError(t, err)
	references, err := c.Publish(within(t, patience), map[string]v1.Image{"probe": image})
	require.NoError(t, err)
	return references["probe"]
}

func probePod(image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "probe", Image: image, Command: []string{"/pause", "wait"}}},
		},
	}
}

// running creates the pod and returns it when it is ready.
func running(t *testing.T, client kubernetes.Interface, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return waitPod(t, client, namespace, pod.Name, "is ready", isReady)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waitPod watches the pod until done says so.
func waitPod(t *testing.T, client kubernetes.Interface, namespace, name, what string, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	watch, err := client.CoreV1().Pods(namespace).Watch(within(t, patience), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	require.NoError(t, err)
	defer watch.Stop()
	var last *corev1.Pod
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		require.True(t, ok, "%v", event.Object)
		if last = pod; done(pod) {
			return pod
		}
	}
	require.FailNow(t, "the pod never "+what, "%+v", last)
	return nil
}

// execIn runs a command in the pod's container and returns its output. stdout may be nil.
func execIn(ctx context.Context, config *rest.Config, namespace, pod string, command ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := stream(ctx, config, namespace, pod, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}, command...)
	return strings.TrimSpace(stdout.String() + stderr.String()), err
}

func stream(ctx context.Context, config *rest.Config, namespace, pod string, options remotecommand.StreamOptions, command ...string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, options)
}
