package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/factory"
)

// slots is a resource of the real node that only one test knows, so that a node can be full for it while others use it.
func (s *site) slots(n int) corev1.ResourceName {
	s.t.Helper()
	nodes, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{LabelSelector: "type!=kwok"})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, nodes.Items, "no node with a kubelet")
	name := "test.idlecount.dev/slots-" + rand.String(6)
	patch := func(value string) {
		_, err := s.client.CoreV1().Nodes().Patch(s.t.Context(), nodes.Items[0].Name, types.MergePatchType,
			[]byte(fmt.Sprintf(`{"status":{"capacity":{%q:%s}}}`, name, value)), metav1.PatchOptions{}, "status")
		require.NoError(s.t, err)
	}
	patch(fmt.Sprintf("%q", fmt.Sprint(n)))
	require.Eventually(s.t, func() bool {
		node, err := s.client.CoreV1().Nodes().Get(s.t.Context(), nodes.Items[0].Name, metav1.GetOptions{})
		q := node.Status.Allocatable[corev1.ResourceName(name)]
		return err == nil && q.Value() == int64(n)
	}, patience, 200*time.Millisecond, "the kubelet offers the slots")
	return corev1.ResourceName(name)
}

// keepsRoom writes a config.toml for GitLab's own executor, whose jobs need a slot each.
func (s *site) keepsRoom(slot corev1.ResourceName, keys ...string) {
	s.t.Helper()
	s.config = filepath.Join(s.t.TempDir(), "config.toml")
	require.NoError(s.t, os.WriteFile(s.config, []byte(fmt.Sprintf(`
[[runners]]
  name = "stock"
  url = "https://gitlab.example.com"
  token = "glrt-stockstockstock"
  executor = "kubernetes"
  [runners.feature_flags]
    FF_USE_ADVANCED_POD_SPEC_CONFIGURATION = true
  [runners.kubernetes]
    namespace = %q
    image = "$CI_IMAGE"
    cpu_request = "1m"
    memory_request = "8Mi"
    idle_strategy = "pause"
    idle_time = "0s"
    idle_entrypoint_image = %q
    %s
    [[runners.kubernetes.pod_spec]]
      name = "slot"
      patch = "containers: [{name: build, resources: {limits: {%s: 1}}}]"
`, s.namespace, s.ref(images.Entrypoint), strings.Join(keys, "\n    "), slot)), 0o600))
}

// stockJob makes the pod of a job as GitLab's executor would, and says how long it took from its creation until it ran.
// Zero: it didn't within the time.
func (s *site) stockJob(name string, slot corev1.ResourceName, within time.Duration) time.Duration {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(s.namespace)
	begin := time.Now()
	made, err := pods.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"manager.runner.gitlab.com/id-short": "stockstoc", "job.runner.gitlab.com/pod": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "build", Image: s.ref(images.JobBusybox), Command: []string{"sleep", "3600"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1m"), "memory": resource.MustParse("8Mi")},
					Limits:   corev1.ResourceList{slot: resource.MustParse("1")},
				},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	changes, err := pods.Watch(s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: made.ResourceVersion})
	require.NoError(s.t, err)
	defer changes.Stop()
	timeout := time.After(within)
	for {
		select {
		case event := <-changes.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			require.True(s.t, ok, "%v", event)
			require.NotEqual(s.t, corev1.PodFailed, pod.Status.Phase, "%s %s", pod.Status.Reason, pod.Status.Message)
			if pod.Status.Phase == corev1.PodRunning {
				return time.Since(begin)
			}
		case <-timeout:
			return 0
		}
	}
}

func (s *site) end(names ...string) {
	s.t.Helper()
	for _, name := range names {
		require.NoError(s.t, s.client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		s.until(name+" has gone", func(pods []corev1.Pod) bool {
			return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
		})
	}
}

// untilHeld waits until so many pause pods run, and none waits.
func (s *site) untilHeld(n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d pause pods run", n), func(pods []corev1.Pod) bool {
		running, all := 0, 0
		for i := range pods {
			if p := &pods[i]; p.Labels[factory.LabelCapacity] != "" {
				all++
				if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					running++
				}
			}
		}
		return running == n && all == n
	})
}

// TestAJobTakesThePlaceOfAPausePod has a real node that is full of pause pods: a job of GitLab's executor runs there about
// as soon as on an empty one, and where the node is full of anything else it doesn't run at all.
func TestAJobTakesThePlaceOfAPausePod(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{})
	slot := s.slots(1)
	s.keepsRoom(slot, "idle_count = 1")

	s.stockJob("pull", slot, patience) // the image is on the node from here on
	s.end("pull")
	empty := s.stockJob("empty", slot, patience)
	require.NotZero(t, empty)
	s.end("empty")

	m := s.startManager()
	s.untilHeld(1)
	preempts := s.stockJob("preempts", slot, patience)
	require.NotZero(t, preempts, "the job waits beside the pause pod")
	full := s.stockJob("full", slot, 5*time.Second)
	require.Zero(t, full, "the node is not full, so nothing was shown")
	t.Logf("from create to Running: empty node %s, node full of pause pods %s, node full of jobs never (in 5 s)",
		empty.Round(time.Millisecond), preempts.Round(time.Millisecond))
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "a job's pod has taken a pause pod's place") },
		patience, 200*time.Millisecond, "the manager has measured it")

	s.end("full", "preempts")
	s.untilHeld(1) // for the next job
	s.keepsRoom(slot, "idle_count = 0")
	m.stop(os.Interrupt)
	s.startManager()
	s.until("nothing is left", func(pods []corev1.Pod) bool { return len(pods) == 0 })
}
