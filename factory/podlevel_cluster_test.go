package factory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// TestAPausePodIsAsLargeAsAJobWithResourcesOfThePod, by what the API server makes of both: requests and limits that a pod_spec patch
// gives to the whole pod, beside those of its containers and a LimitRange's. So large are its requests taken for, too. From 1.37 on
// the API server gives the pod limits that weren't said; they aren't foreseen.
func TestAPausePodIsAsLargeAsAJobWithResourcesOfThePod(t *testing.T) {
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	const small = "cpu_request = \"1\"\nmemory_request = \"1Gi\"\n"
	defaults := &corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: amounts("cpu", "1"), DefaultRequest: amounts("cpu", "500m")}
	most := &corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("cpu", "2"), DefaultRequest: amounts("cpu", "1")}
	for sentence, tt := range map[string]struct {
		keys, patch string
		limits      *corev1.LimitRangeItem
	}{
		"limits beside requests of containers":  {small, "limits: {cpu: 4, memory: 8Gi}", nil},
		"limits alone":                          {"", "limits: {cpu: 4, memory: 8Gi}", nil},
		"a limit of one resource":               {small, "limits: {cpu: 4}", nil},
		"requests beside limits of a container": {"cpu_request = \"1\"\ncpu_limit = \"2\"\nhelper_cpu_limit = \"1\"\n", "requests: {cpu: 4, memory: 8Gi}", nil},
		"limits below the sum of the containers'": {
			"cpu_limit = \"2\"\nhelper_cpu_limit = \"2\"\ncpu_request = \"1\"\nhelper_cpu_request = \"1\"\n", "limits: {cpu: 3}", nil,
		},
		"requests under a LimitRange":                              {"", "requests: {cpu: 4}", defaults},
		"limits under a LimitRange":                                {small, "limits: {cpu: 4, memory: 8Gi}", defaults},
		"requests where no container may be larger than a maximum": {"", "requests: {cpu: 3}", most},
	} {
		t.Run(sentence, func(t *testing.T) {
			namespace := clustertest.Namespace(t)
			var ranges []*corev1.LimitRange
			if tt.limits != nil {
				made, err := client.CoreV1().LimitRanges(namespace).Create(t.Context(), &corev1.LimitRange{
					ObjectMeta: metav1.ObjectMeta{Name: "ci"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{*tt.limits}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				ranges = append(ranges, made)
				bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}}}}
				require.Eventually(t, func() bool { // admission sees a LimitRange a moment after it was made
					pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), bare, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err == nil && len(pod.Spec.Containers[0].Resources.Requests) > 0
				}, time.Minute, 50*time.Millisecond)
			}
			file := filepath.Join(t.TempDir(), "config.toml")
			require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`
[[runners]]
name = "ci"
url = "https://gitlab.example.com"
token = "glrt-eaaaaaaaaaaaaaaaaaaa"
executor = "kubernetes"
[runners.feature_flags]
FF_USE_ADVANCED_POD_SPEC_CONFIGURATION = true
[runners.kubernetes]
namespace = %q
image = "job:1"
idle_entrypoint_image = "entrypoint:1"
idle_strategy = "pause"
idle_count = 1
%s
[[runners.kubernetes.pod_spec]]
name = "whole"
patch = "resources: {%s}"
`, namespace, tt.keys, tt.patch)), 0o600))
			cfg, err := config.Load([]string{file})
			require.NoError(t, err)
			c, err := CapacityOf(cfg.Runners[0], "", ranges, patch.Apply)
			require.NoError(t, err)
			_, spec, err := jobSpec(cfg.Runners[0], "", patch.Apply)
			require.NoError(t, err)
			admitted := func(spec corev1.PodSpec) *corev1.Pod {
				t.Helper()
				spec.ServiceAccountName, spec.PriorityClassName = "", ""
				pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: spec},
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				require.NoError(t, err)
				return pod
			}
			job, pause, believed := admitted(spec), admitted(c.Template.Spec), &corev1.Pod{Spec: c.Template.Spec}
			options := resourcehelper.PodResourcesOptions{}
			require.Equal(t, text(resourcehelper.PodRequests(job, options)), text(resourcehelper.PodRequests(pause, options)))
			require.Equal(t, text(resourcehelper.PodLimits(job, options)), text(resourcehelper.PodLimits(pause, options)))
			require.Equal(t, text(resourcehelper.PodRequests(job, options)), text(resourcehelper.PodRequests(believed, options)))
		})
	}
}
