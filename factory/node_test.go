package factory_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/factory"
)

// TestAJobsPodOnANode: under Pod Security `restricted`, with a service whose variable comes in a Secret that is created
// after the pod, and that goes with it.
func TestAJobsPodOnANode(t *testing.T) {
	t.Parallel()
	client, namespace := enforcing(t, "restricted")
	r, references := runnable(t, "restricted", namespace)
	r.Kubernetes.Services = nil
	job := factory.Job{Services: []factory.Service{{
		Name: references[images.JobBusybox], Aliases: []string{"db"},
		Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{`echo "$PASSWORD" > /builds/seen; exec sleep 3600`},
		Variables: map[string]string{"PASSWORD": "hunter2"},
	}}}
	shape, err := factory.ShapeOf(r, job)
	require.NoError(t, err)
	meta := factory.JobMeta{ID: "101", ClaimedAt: time.Now(), Timeout: time.Hour}
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), factory.JobPod(r, shape, "job", meta), metav1.CreateOptions{})
	require.NoError(t, err)
	secrets := factory.Dependents(pod, shape, job)
	require.Len(t, secrets, 1)
	_, err = client.CoreV1().Secrets(namespace).Create(t.Context(), secrets[0], metav1.CreateOptions{})
	require.NoError(t, err)

	pod = waitFor(t, client, namespace, "job", func(pod *corev1.Pod) bool { return factory.ReadySince(pod) != nil })
	require.Equal(t, factory.Claimed, factory.PhaseOf(pod))
	for _, role := range []wire.Role{wire.Build, wire.Helper} {
		out := run(t, client, namespace, "job", string(role), "sh", "-c",
			"id -u; until cat /builds/seen 2>/dev/null; do sleep 0.1; done; grep -w db /etc/hosts; echo x > /cache/x; cat /proc/1/cmdline | tr '\\0' ' '")
		require.Regexp(t, `^1000\nhunter2\n127\.0\.0\.1\s.*\bdb\b.*\n/idlecount/bin/entrypoint serve $`, out, role)
	}

	require.NoError(t, client.CoreV1().Pods(namespace).Delete(t.Context(), "job", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	waitForNone(t, client, namespace, secrets[0].Name)
}

// TestAnIdlePodOnANodeEndsByItself, with its service and without anybody's help.
func TestAnIdlePodOnANodeEndsByItself(t *testing.T) {
	t.Parallel()
	client, namespace := enforcing(t, "baseline")
	r, references := runnable(t, "minimal", namespace)
	r.Kubernetes.Services = []config.Service{{Name: references[images.JobBusybox], Command: []string{"sleep", "3600"}}}
	shape, err := factory.ShapeOf(r, factory.Job{})
	require.NoError(t, err)
	anchor, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), factory.Anchor(r, shape), metav1.CreateOptions{})
	require.NoError(t, err)
	name := factory.PodName(anchor.Name, "x7k2p")
	pod := factory.IdlePod(r, shape, name, time.Second, factory.Owner{Name: anchor.Name, UID: anchor.UID})
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)

	pod = waitFor(t, client, namespace, name, func(pod *corev1.Pod) bool {
		phase := factory.PhaseOf(pod)
		return phase == factory.Expired || phase == factory.Failed
	})
	require.Equal(t, factory.Expired, factory.PhaseOf(pod), "%v", pod.Status.ContainerStatuses)
	for _, status := range pod.Status.InitContainerStatuses {
		require.NotNil(t, status.State.Terminated, "%s still runs", status.Name)
	}
}

// runnable is the runner of a golden with images that a node can pull, small enough to fit beside other tests.
func runnable(t *testing.T, golden, namespace string) (config.Runner, images.References) {
	t.Helper()
	local, err := cluster.Find(t.Context())
	if err != nil {
		t.Skipf("idlecount's images are served by the local cluster's registry only: %v", err)
	}
	set, err := images.Build(t.Context(), nil, images.Entrypoint, images.Helper, images.JobBusybox)
	require.NoError(t, err)
	references, err := set.Publish(t.Context(), local)
	require.NoError(t, err)
	cfg, err := config.Load([]string{filepath.Join("testdata", golden+".toml")})
	require.NoError(t, err)
	r := cfg.Runners[0]
	k := &r.Kubernetes
	k.Namespace = namespace
	k.Image, k.HelperImage, k.IdleEntrypointImage = references[images.JobBusybox], references[images.Helper], references[images.Entrypoint]
	k.CPURequest, k.HelperCPURequest, k.ServiceCPURequest = "10m", "10m", "10m"
	k.MemoryRequest, k.HelperMemoryRequest, k.ServiceMemoryRequest = "16Mi", "16Mi", "16Mi"
	// Busybox as PID 1 doesn't end on TERM.
	k.PodTerminationGracePeriodSeconds = new(int64(1))
	return r, references
}

// waitFor watches a pod until it is as wanted.
func waitFor(t *testing.T, client kubernetes.Interface, namespace, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	changes, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	require.NoError(t, err)
	defer changes.Stop()
	var last *corev1.Pod
	for event := range changes.ResultChan() {
		require.NotContains(t, []watch.EventType{watch.Error, watch.Deleted}, event.Type)
		pod, ok := event.Object.(*corev1.Pod)
		require.True(t, ok, "%T", event.Object)
		if last = pod; wanted(pod) {
			return pod
		}
	}
	t.Fatalf("pod %s did not become what was waited for: %v", name, last)
	return nil
}

// waitForNone waits until a Secret is gone.
func waitForNone(t *testing.T, client kubernetes.Interface, namespace, secret string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// From the list's version on, so that a deletion between the two isn't missed.
	selector := fields.OneTermEqualSelector("metadata.name", secret).String()
	list, err := client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	require.NoError(t, err)
	if len(list.Items) == 0 {
		return
	}
	changes, err := client.CoreV1().Secrets(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	defer changes.Stop()
	for event := range changes.ResultChan() {
		if event.Type == watch.Deleted {
			return
		}
	}
	t.Fatalf("the Secret %s outlives its pod", secret)
}

// run runs a command in a container and returns what it writes.
func run(t *testing.T, client kubernetes.Interface, namespace, pod, container string, command ...string) string {
	t.Helper()
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(clustertest.RestConfig(t), "POST", request.URL())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, problems bytes.Buffer
	require.NoError(t, executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problems}), "%s", &problems)
	require.Empty(t, problems.String())
	return out.String()
}
