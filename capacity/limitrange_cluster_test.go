package capacity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// limitRange makes or changes what the namespace's LimitRange has to say of containers.
func (g *ground) limitRange(item corev1.LimitRangeItem) {
	g.t.Helper()
	item.Type = corev1.LimitTypeContainer
	ranges := g.client.CoreV1().LimitRanges(g.namespace)
	fresh := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "ci"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	_, err := ranges.Update(g.t.Context(), fresh, metav1.UpdateOptions{})
	if err != nil {
		_, err = ranges.Create(g.t.Context(), fresh, metav1.CreateOptions{})
	}
	require.NoError(g.t, err)
}

// admittedJob is the pod of a job of ours as the API server would take it now.
func (g *ground) admittedJob(r config.Runner) *corev1.Pod {
	g.t.Helper()
	shape, err := factory.ShapeOf(r, factory.Job{})
	require.NoError(g.t, err)
	pod, err := g.client.CoreV1().Pods(g.namespace).Create(g.t.Context(),
		factory.JobPod(r, shape, "job", factory.JobMeta{ID: "1"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(g.t, err)
	return pod
}

// TestAPausePodIsAsLargeAsAJobUnderALimitRange, by the scheduler's own sum of what admission leaves of both; also where no
// single container may be so large, and when the range changes.
func TestAPausePodIsAsLargeAsAJobUnderALimitRange(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 1")
	cfg.Runners[0].Executor = config.ExecutorCustom // whose jobs' pods we make
	asLarge := func(defaulted string, containers int) func() bool {
		return func() bool {
			job, pauses := g.admittedJob(cfg.Runners[0]), g.pods(factory.LabelCapacity)
			// Admission sees a LimitRange a moment after it was made.
			if q := job.Spec.Containers[len(job.Spec.Containers)-1].Resources.Limits["memory"]; q.String() != defaulted || len(pauses) != 1 {
				return false
			}
			pause, options := &pauses[0], resourcehelper.PodResourcesOptions{}
			return len(pause.Spec.Containers) == containers &&
				apiequality.Semantic.DeepEqual(resourcehelper.PodRequests(job, options), resourcehelper.PodRequests(pause, options)) &&
				apiequality.Semantic.DeepEqual(resourcehelper.PodLimits(job, options), resourcehelper.PodLimits(pause, options))
		}
	}
	g.limitRange(corev1.LimitRangeItem{Default: amounts("2", "256Mi"), DefaultRequest: amounts("100m", "128Mi")})
	k := g.keep(cfg)
	await(t, "it is as large", asLarge("256Mi", 1))
	before := g.deployment()
	g.limitRange(corev1.LimitRangeItem{
		Default: amounts("2", "512Mi"), DefaultRequest: amounts("200m", "128Mi"), Max: amounts("2", "1Gi"),
		MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("10")}, Min: amounts("100m", "1Mi"),
	})
	await(t, "the change is rolled out", asLarge("512Mi", 2))
	require.Equal(t, before.UID, g.deployment().UID)
	require.Nil(t, g.status().Trouble)
	for _, operation := range []string{"create deployment", "update deployment"} {
		require.InDelta(t, 1, k.metric("idlecount_capacity_writes_total", "operation", operation, "result", "ok"), 0, operation)
	}
	require.False(t, g.preview(cfg).RollsOut, "a preview sees LimitRanges too")

	g.limitRange(corev1.LimitRangeItem{ // which refuses the jobs as well
		Default: amounts("2", "512Mi"), DefaultRequest: amounts("200m", "128Mi"), MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("1")},
	})
	await(t, "what the API server refuses is said in its words", func() bool {
		s := g.status()
		return s.Trouble != nil && s.Trouble.Reason == status.Admission && strings.Contains(s.Trouble.Message, "cpu max limit to request ratio per Container is 1")
	})
}

// TestRoomIsHeldWithoutSeeingQuotasAndLimitRanges: who may not see them is told so, once.
func TestRoomIsHeldWithoutSeeingQuotasAndLimitRanges(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.asAccount("list watch resourcequotas", "list watch limitranges").keep(g.config(`idle_strategy = "pause"`, "idle_count = 1"))
	await(t, "it is there", func() bool { return len(g.pods(factory.LabelCapacity)) == 1 })
	for _, what := range []string{"the manager may not see resourcequotas, so", "the manager may not see limitranges, so"} {
		await(t, what, func() bool { return strings.Contains(k.log.String(), what) })
	}
	require.Empty(t, k.Unkept())
}
