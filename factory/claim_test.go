package factory

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

func TestWhatAClaimSets(t *testing.T) {
	r := load(t, "full")
	m := ClaimMetadata(r, testMeta(), Warm)
	require.Equal(t, map[string]string{
		"idlecount.dev/state":                      "claimed",
		"idlecount.dev/job":                        "101",
		"pod":                                      "runner-full-full-project-7-concurrent-2",
		"job.runner.gitlab.com/pod":                "runner-full-full-project-7-concurrent-2",
		"project.runner.gitlab.com/id":             "7",
		"project.runner.gitlab.com/name":           "prj",
		"project.runner.gitlab.com/namespace":      "grp_sub",
		"project.runner.gitlab.com/namespace-id":   "3",
		"project.runner.gitlab.com/root-namespace": "grp",
		"manager.runner.gitlab.com/name":           "full",
		"manager.runner.gitlab.com/id-short":       "Full_Full",
		"project":                                  "grp_sub_prj", // pod_labels with a variable; those without are there from birth
	}, m.Labels)
	require.Equal(t, map[string]string{
		"idlecount.dev/claimed-at":                       "2026-03-01T11:00:00Z",
		"idlecount.dev/warmth":                           "warm",
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
		"karpenter.sh/do-not-disrupt":                    "true",
		"job.runner.gitlab.com/id":                       "101",
		"job.runner.gitlab.com/url":                      "hidden", // the configuration's word stands
		"job.runner.gitlab.com/sha":                      "0123456789012345678901234567890123456789",
		"job.runner.gitlab.com/before_sha":               "0000000000000000000000000000000000000000",
		"job.runner.gitlab.com/ref":                      "feature/ä",
		"job.runner.gitlab.com/name":                     "build: [linux, amd64]",
		"job.runner.gitlab.com/timeout":                  "1h0m0s",
		"project.runner.gitlab.com/id":                   "7",
		"example.com/pipeline":                           "https://gitlab.example.com/grp/sub/prj/-/pipelines/11",
	}, m.Annotations)
}

func TestAClaimSaysNothingOfWhatItDoesNotKnow(t *testing.T) {
	m := ClaimMetadata(config.Runner{}, JobMeta{ID: "1", ClaimedAt: time.Unix(0, 0)}, Cold)
	require.Equal(t, map[string]string{LabelState: StateClaimed, LabelJob: "1"}, m.Labels)
	require.Equal(t, map[string]string{
		AnnotationClaimedAt: "1970-01-01T00:00:00Z", AnnotationWarmth: "cold",
		AnnotationSafeToEvict: "false", AnnotationDoNotDisrupt: "true", AnnotationGitLabJob: "1",
	}, m.Annotations)
}

// TestAClaimedPodIsWhatAColdOneIs: whoever looks at a job's pod must not have to know how it came to be.
func TestAClaimedPodIsWhatAColdOneIs(t *testing.T) {
	for name := range shapes {
		t.Run(name, func(t *testing.T) {
			r := load(t, name)
			s, job := shapeOf(t, r, Job{}), testMeta()
			warm := IdlePod(r, s, "pod", time.Hour, testAnchor)
			ClaimMetadata(r, job, Warm).over(warm.Labels, warm.Annotations)
			warm.OwnerReferences = nil
			warm.Spec.ActiveDeadlineSeconds = ActiveDeadline(nil, job)
			cold := JobPod(r, s, "pod", job)

			require.Equal(t, "1h0m0s", warm.Spec.Containers[0].Env[1].Value)
			abandon := r.Kubernetes.IdleAbandonTime.String()
			require.Equal(t, abandon, cold.Spec.Containers[0].Env[1].Value, "a driver that died before the handshake leaves nothing")
			for i := range warm.Spec.Containers {
				warm.Spec.Containers[i].Env[1].Value = abandon
			}
			require.Equal(t, "warm", warm.Annotations[AnnotationWarmth])
			require.Equal(t, "cold", cold.Annotations[AnnotationWarmth])
			for _, key := range []string{AnnotationWarmth, AnnotationIdleTime, AnnotationTemplate} {
				delete(warm.Annotations, key)
				delete(cold.Annotations, key)
			}
			require.Equal(t, cold, warm)
		})
	}
}

func TestVariablesInPodLabels(t *testing.T) {
	r := load(t, "minimal")
	r.Kubernetes.PodLabels = map[string]string{"a": "$A-${B}", "b": "$MISSING", "c": "plain", "d": "x/y"}
	pod := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor)
	require.Equal(t, "plain", pod.Labels["c"])
	require.Equal(t, "x_y", pod.Labels["d"])
	require.NotContains(t, pod.Labels, "a")
	require.NotContains(t, pod.Labels, "b")
	m := ClaimMetadata(r, JobMeta{Variables: map[string]string{"A": "äh", "B": "b"}}, Warm)
	require.Equal(t, "h-b-"+shortHash([]byte("äh-b")), m.Labels["a"])
	require.Empty(t, m.Labels["b"])
	require.Equal(t, "$A", expand("$$A", map[string]string{"A": "x"}))
	require.NotContains(t, m.Labels, "c")
}

func TestOurKeysAreNotTheConfigurationsToSet(t *testing.T) {
	r := load(t, "minimal")
	forged := map[string]string{LabelState: "forged", LabelJob: "$FORGED", AnnotationWarmth: "forged", AnnotationSafeToEvict: "forged", "a": "b"}
	r.Kubernetes.PodLabels, r.Kubernetes.PodAnnotations = forged, forged
	pod := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor)
	require.Equal(t, "forged", pod.Labels[AnnotationSafeToEvict], "a label of that name is nobody's")
	for _, m := range []map[string]string{pod.Labels, pod.Annotations} {
		require.Equal(t, "b", m["a"])
		require.NotContains(t, m, LabelJob)
		require.NotContains(t, m, AnnotationWarmth)
	}
	require.Equal(t, StateIdle, pod.Labels[LabelState])
	require.NotContains(t, pod.Annotations, LabelState)
	require.Equal(t, "true", pod.Annotations[AnnotationSafeToEvict])
	claim := ClaimMetadata(r, testMeta(), Warm)
	require.Equal(t, "101", claim.Labels[LabelJob])
	require.Equal(t, "false", claim.Annotations[AnnotationSafeToEvict])
}

func TestActiveDeadline(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	started := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-ago)} }
	for name, c := range map[string]struct {
		started *metav1.Time
		timeout time.Duration
		want    *int64
	}{
		"a pod that has not started":        {nil, time.Hour, new(int64(3600 + 360))},
		"a pod that idled for half an hour": {started(30 * time.Minute), time.Hour, new(int64(1800 + 3600 + 360))},
		"a node whose clock is ahead":       {started(-time.Minute), time.Hour, new(int64(3600 + 360))},
		"fractions are rounded up":          {started(time.Millisecond), time.Second, new(int64(362))},
		"no timeout, no deadline":           {started(time.Hour), 0, nil},
		"no more than the API server takes": {nil, 100 * 365 * 24 * time.Hour, new(int64(1<<31 - 1))},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, ActiveDeadline(c.started, JobMeta{ClaimedAt: noon, Timeout: c.timeout}))
		})
	}
}

// TestNothingSecretIsInAnObject: whoever may read pods must not learn the runner's token from them.
func TestNothingSecretIsInAnObject(t *testing.T) {
	for name := range shapes {
		token := load(t, name).Token
		for _, object := range objects(t, name) {
			b, err := json.Marshal(object)
			require.NoError(t, err)
			require.NotContains(t, string(b), token)
			require.NotContains(t, string(b), strings.TrimPrefix(token, "glrt-"))
		}
	}
}

func TestObjectsAreTheCallersToChange(t *testing.T) {
	r := load(t, "full")
	s := shapeOf(t, r, servicesJob())
	before, err := json.Marshal([]any{r, s})
	require.NoError(t, err)
	for _, pod := range []any{IdlePod(r, s, "a", 0, testAnchor), JobPod(r, s, "b", testMeta()), Anchor(r, s), ClaimMetadata(r, testMeta(), Warm)} {
		scribble(t, pod)
	}
	after, err := json.Marshal([]any{r, s})
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))

	// Nor does a shape change with the configuration that it was made from.
	hash := s.Hash()
	for _, m := range []map[string]string{r.Kubernetes.PodLabels, r.Kubernetes.PodAnnotations, r.Kubernetes.NodeSelector} {
		maps.DeleteFunc(m, func(string, string) bool { return true })
	}
	scribble(t, &r)
	require.Equal(t, hash, s.Hash())
}
