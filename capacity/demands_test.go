package capacity_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
)

// TestRoomBesideIdlePodsFollowsNoFactor: scale_factor is of idle pods where idle_pause_count says how much room there is beside
// them, and of room where that is all there is.
func TestRoomBesideIdlePodsFollowsNoFactor(t *testing.T) {
	beside := runnerOf("beside", config.StrategyPods)
	beside.Kubernetes.IdleCount, beside.Kubernetes.IdlePauseCount = 7, 2
	room := runnerOf("room", config.StrategyPause)
	room.Kubernetes.IdleCount = 3
	found, err := capacity.Demands(&config.Config{Runners: []config.Runner{beside, room}}, func(string) []*corev1.LimitRange { return nil })
	require.NoError(t, err)
	require.Len(t, found, 2)
	now := found[0].Schedule.At(time.Now())
	require.Equal(t, 2, now.IdleCount)
	require.Zero(t, now.ScaleFactor)
	require.Zero(t, now.ScaleFactorLimit)
	now = found[1].Schedule.At(time.Now())
	require.Equal(t, 3, now.IdleCount)
	require.InDelta(t, 0.5, now.ScaleFactor, 0)
	require.Equal(t, 20, now.ScaleFactorLimit)
}

// TestADemandIsAsLargeAsJobsAreInItsNamespace: where a LimitRange has defaults, those count.
func TestADemandIsAsLargeAsJobsAreInItsNamespace(t *testing.T) {
	small, large := runnerOf("a", config.StrategyPause), runnerOf("b", config.StrategyPause)
	small.Kubernetes.Namespace, large.Kubernetes.Namespace = "small", "large"
	cfg := &config.Config{Runners: []config.Runner{small, large}}
	found, err := capacity.Demands(cfg, func(namespace string) []*corev1.LimitRange {
		if namespace == "small" {
			return nil
		}
		return []*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}}}
	})
	require.NoError(t, err)
	require.Len(t, found, 2)
	for i, namespace := range []string{"small", "large"} {
		require.Equal(t, namespace, found[i].Capacity.Namespace)
		memory := found[i].Capacity.Template.Spec.Containers[0].Resources.Requests.Memory()
		require.Equal(t, namespace == "small", memory.IsZero(), "%s: %s", namespace, memory)
		require.False(t, found[i].Buffered)
	}
}

func runnerOf(name, strategy string) config.Runner {
	r := config.Runner{
		Path: "runners[0]", Name: name, Token: "glrt-" + name + name + name, Executor: "kubernetes", Shell: "bash",
		BuildsDir: config.DefaultBuildsDir, CacheDir: config.DefaultCacheDir, HasKubernetes: true, HasIdle: true,
	}
	r.Kubernetes.Namespace, r.Kubernetes.IdleStrategy, r.Kubernetes.CPURequest = "ci", strategy, "1"
	r.Kubernetes.ScaleFactor, r.Kubernetes.ScaleFactorLimit = 0.5, 20
	return r
}
