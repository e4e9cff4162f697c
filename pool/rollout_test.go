package pool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// steady checks at each event that a full pool of n has as many idle pods and no more than the surge beyond.
func (g *ground) steady(n int) {
	g.view.always(g.t, func(pods []*corev1.Pod) error {
		idle, unclaimed := 0, 0
		for _, pod := range pods {
			switch factory.PhaseOf(pod) {
			case factory.Idle:
				idle++
				unclaimed++
			case factory.Warming:
				unclaimed++
			}
		}
		if idle < n || unclaimed > n+plan.Surge(n) {
			return fmt.Errorf("%d idle pods and %d unclaimed ones of %d, with a surge of %d", idle, unclaimed, n, plan.Surge(n))
		}
		return nil
	})
}

func TestAnotherShapeIsReadyBeforeTheOldOneGoes(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	file := newReloads(t)
	c := g.config("idle_count = 8", kwok)
	m := g.manage(c, file.option)
	g.view.awaitPods(t, 8, factory.Idle)
	claimed := g.claim(c, "1")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 8 && len(g.view.in(factory.Claimed)) == 1
	})
	before := uids(g.view.in(factory.Idle))
	old := g.anchorNames()[0]
	g.steady(8)

	file.load(g.config("idle_count = 8", `cpu_request = "1m"`, kwok))
	g.view.await(t, "all idle pods are of the new shape", func() bool {
		for uid := range uids(g.view.in(factory.Idle, factory.Warming)) {
			if before[uid] {
				return false
			}
		}
		return len(g.view.in(factory.Idle)) == 8 && len(g.view.in(factory.Warming)) == 0
	})
	require.Contains(t, g.view.in(factory.Claimed), claimed.Name)
	require.Len(t, g.view.statuses(), 2)
	for name, s := range g.view.statuses() {
		if name == old {
			require.Equal(t, "replaced", s.Policy)
			require.NotEqual(t, old, s.ReplacedBy)
			require.Contains(t, g.anchorNames(), s.ReplacedBy)
			require.Zero(t, s.Want)
		} else {
			require.Equal(t, "default", s.Policy)
			require.Empty(t, s.ReplacedBy)
		}
	}
	g.awaitEvent("Replaced", "takes this one's place")
	await(t, "the metric says why they went", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "replaced") == 8 })
	g.delete(claimed)
	g.view.await(t, "the old anchor goes with its last job", func() bool { return len(g.view.statuses()) == 1 })
	require.Equal(t, 17, m.metric("idlecount_pods_created_total"))
}

func (g *ground) anchorNames() []string {
	var names []string
	for name := range g.view.statuses() {
		names = append(names, name)
	}
	return names
}

func TestAnotherTemplateIsRolledOutWithinThePool(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	file := newReloads(t)
	m := g.manage(g.config("idle_count = 8", kwok), file.option)
	before := uids(g.view.awaitPods(t, 8, factory.Idle))
	g.steady(8)
	next := g.config("idle_count = 8", kwok)
	next.Runners[0].Kubernetes.IdleEntrypointImage = "entrypoint:2"
	file.load(next)
	g.view.await(t, "every pod has the new entrypoint", func() bool {
		for _, pod := range g.view.in(factory.Idle, factory.Warming) {
			if before[pod.UID] || pod.Spec.InitContainers[0].Image != "entrypoint:2" {
				return false
			}
		}
		return len(g.view.in(factory.Idle)) == 8
	})
	require.Len(t, g.view.statuses(), 1, "it is the same pool")
	await(t, "each was replaced once", func() bool {
		return m.metric("idlecount_pods_deleted_total", "reason", "replaced") == 8 && m.metric("idlecount_pods_created_total") == 16
	})
}

func TestWhereTheNewShapeDoesNotStartTheOldPodsStay(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	file := newReloads(t)
	good := g.config("idle_count = 4", kwok)
	m := g.manage(good, file.option)
	before := uids(g.view.awaitPods(t, 4, factory.Idle))
	g.steady(4)
	file.load(g.config("idle_count = 4", nowhere))
	short := g.view.awaitShortfall(t, status.Unschedulable)
	require.Contains(t, short.Message, "nodes are available")
	g.view.await(t, "the old pool says that it is being replaced", func() bool {
		for _, s := range g.view.statuses() {
			if s.ReplacedBy != "" {
				return true
			}
		}
		return false
	})
	require.Equal(t, before, uids(g.view.in(factory.Idle)))
	require.Len(t, g.view.in(factory.Warming), 1, "a surge of one tries")

	file.load(good)
	g.view.awaitPods(t, 4, factory.Idle)
	require.Equal(t, before, uids(g.view.in(factory.Idle)), "taken back, the pods are those from before")
	g.view.await(t, "nothing is left of the other shape", func() bool { return len(g.view.statuses()) == 1 })
	require.Equal(t, 5, m.metric("idlecount_pods_created_total"))
}

// TestWhereTheNewTemplateDoesNotStartTheStatusSaysSo: enough pods are idle all the while, so nothing else would tell.
func TestWhereTheNewTemplateDoesNotStartTheStatusSaysSo(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	file := newReloads(t)
	g.manage(g.config("idle_count = 2", nowhere), file.option)
	g.view.await(t, "two pods are made", func() bool { return len(g.view.in(factory.Warming)) == 2 })
	for _, pod := range g.view.in(factory.Warming) {
		g.kubelet(pod, ready)
	}
	before := uids(g.view.awaitPods(t, 2, factory.Idle))
	g.steady(2)
	// The API server writes births in whole seconds, and a pod that is no younger than one that is ready shows nothing new.
	born := time.Now().Truncate(time.Second)
	require.Eventually(t, func() bool { return time.Now().Truncate(time.Second).After(born) }, patience, 20*time.Millisecond)
	next := g.config("idle_count = 2", nowhere)
	next.Runners[0].Kubernetes.IdleEntrypointImage = "entrypoint:2"
	file.load(next)
	g.view.await(t, "a replacement is tried", func() bool { return len(g.view.in(factory.Warming)) == 1 })
	for _, pod := range g.view.in(factory.Warming) {
		g.kubelet(pod, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			s.InitContainerStatuses = []corev1.ContainerStatus{{Name: "entrypoint", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "entrypoint:2": ErrImagePull: entrypoint:2: not found`,
			}}}}
		})
	}
	short := g.view.awaitShortfall(t, status.ImagePull)
	require.True(t, short.Replacing)
	require.Equal(t, before, uids(g.view.in(factory.Idle)))
}

// TestARolloutUnderAQuotaEnds has no place for a surge: some of the old pods have to go first.
func TestARolloutUnderAQuotaEnds(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	g.quota("4")
	file := newReloads(t)
	g.manage(g.config("idle_count = 4", kwok), file.option)
	before := uids(g.view.awaitPods(t, 4, factory.Idle))
	replaced := func() bool {
		for uid := range uids(g.view.in(factory.Idle)) {
			if before[uid] {
				return false
			}
		}
		return len(g.view.in(factory.Idle)) == 4
	}
	file.load(g.config("idle_count = 4", `cpu_request = "1m"`, kwok))
	g.view.await(t, "all pods are of the new shape", replaced)
	g.view.await(t, "the old anchor is gone", func() bool { return len(g.view.statuses()) == 1 })
	before = uids(g.view.in(factory.Idle))
	next := g.config("idle_count = 4", `cpu_request = "1m"`, kwok)
	next.Runners[0].Kubernetes.IdleEntrypointImage = "entrypoint:2"
	file.load(next)
	g.view.await(t, "all pods are of the new template", replaced)
	g.view.awaitNoShortfall(t)
}

// annotate sets an annotation on all anchors, or takes it away.
func (g *ground) annotate(key, value string) {
	g.t.Helper()
	if value != "null" {
		value = fmt.Sprintf("%q", value)
	}
	for name := range g.view.statuses() {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
		_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(g.t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		require.NoError(g.t, err)
	}
}

func TestADrainedPoolStaysEmptyThroughRestartsAndRollouts(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 3", kwok)
	m := g.manage(c)
	g.view.awaitPods(t, 3, factory.Idle)
	claimed := g.claim(c, "1")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 3 && len(g.view.in(factory.Claimed)) == 1
	})
	g.annotate(factory.AnnotationDrained, "true")
	onlyTheJob := func() bool { return len(g.view.all()) == 1 && len(g.view.in(factory.Claimed)) == 1 }
	g.view.await(t, "only the claimed pod is left", onlyTheJob)
	await(t, "the metric says why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "drained") == 3 })
	m.stop()

	file := newReloads(t)
	m = g.manage(c, file.option)
	await(t, "the next manager has looked", func() bool { return m.metric("idlecount_pods", "state", "claimed") == 1 })
	require.True(t, onlyTheJob())
	file.load(g.config("idle_count = 3", `cpu_request = "1m"`, kwok))
	g.view.await(t, "the new shape's anchor is there", func() bool { return len(g.view.statuses()) == 2 })
	await(t, "the manager has looked at both", func() bool {
		return m.metric("idlecount_pods_wanted") == 0 && m.metric("idlecount_pods", "state", "claimed") == 1
	})
	require.True(t, onlyTheJob())
	require.Zero(t, m.metric("idlecount_pods_created_total"))
	require.Contains(t, g.view.in(factory.Claimed), claimed.Name)
	g.annotate(factory.AnnotationDrained, "null")
	g.view.awaitPods(t, 3, factory.Idle)
}

// TestALimitIsSharedOutAndNotTheFirstPools: the first pool has all of the limit before the second one is configured.
func TestALimitIsSharedOutAndNotTheFirstPools(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	file := newReloads(t)
	m := g.manage(g.configLimited(7, "idle_count = 9", kwok), file.option)
	g.view.awaitPods(t, 7, factory.Idle)
	c := g.configLimited(7, "idle_count = 9", `idle_images = ["job:1", "job:2"]`, kwok)
	file.load(c)
	shares := func() map[string]int {
		n := map[string]int{}
		for _, pod := range g.view.in(factory.Idle) {
			n[pod.Annotations[factory.AnnotationImage]]++
		}
		return n
	}
	fair := func(total int) func() bool {
		return func() bool {
			n := shares()
			return n["job:1"]+n["job:2"] == total && max(n["job:1"], n["job:2"])-min(n["job:1"], n["job:2"]) <= 1 && len(g.view.in(factory.Warming)) == 0
		}
	}
	g.view.await(t, "each pool has half", fair(7))
	// The seventh pod is that of the first pool by name.
	lacking := shares()["job:2"]
	await(t, "as much was given back as was lacking, and no more", func() bool {
		return m.metric("idlecount_pods_deleted_total", "reason", "limit") == lacking
	})
	g.claim(c, "1")
	g.claim(c, "2")
	g.view.await(t, "each pool has half of what the jobs leave", fair(5))
}

// TestAJobLongPastItsDeadlineIsEnded: no kubelet has begun with the pod, so none will ever end it.
func TestAJobLongPastItsDeadlineIsEnded(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	c := g.config("idle_count = 0", "scale_factor = 1.0", nowhere)
	m := g.manage(c)
	shape, err := factory.ShapeOf(c.Runners[0], factory.Job{Image: "job:1"})
	require.NoError(t, err)
	create := func(name string, claimed time.Duration, r config.Runner) {
		_, err := g.client.CoreV1().Pods(g.namespace).Create(t.Context(), factory.JobPod(r, shape, name, factory.JobMeta{
			ID: name, ClaimedAt: time.Now().Add(-claimed), Timeout: time.Minute,
		}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("late", 11*time.Minute, c.Runners[0])
	create("gone", 13*time.Minute, c.Runners[0])
	g.view.await(t, "the one whose deadline has long passed is gone", func() bool { return g.view.in(factory.Claimed)["gone"] == nil })
	await(t, "the metric says why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "deadline") == 1 })
	await(t, "an event on the pod says why", func() bool {
		events, err := g.client.CoreV1().Events(g.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=Deadline"})
		require.NoError(t, err)
		return len(events.Items) == 1 && events.Items[0].InvolvedObject.Name == "gone"
	})
	require.Contains(t, g.view.in(factory.Claimed), "late")
}
