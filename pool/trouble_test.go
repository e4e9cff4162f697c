package pool_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/status"
)

func TestAQuotaIsNamedAndFillingResumesWhenItGrows(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	g.quota("2")
	m := g.manage(g.config("idle_count = 4", kwok))
	short := g.view.awaitShortfall(t, status.Quota)
	require.Contains(t, short.Message, "exceeded quota: two-pods")
	g.view.awaitPods(t, 2, factory.Idle)
	g.awaitEvent("Shortfall", "Quota: pods")

	g.quota("10")
	g.view.awaitPods(t, 4, factory.Idle)
	g.view.awaitNoShortfall(t)
	g.awaitEvent("Recovered", "Quota is over")
	require.Less(t, m.metric("idlecount_pods_created_total", "result", "Forbidden"), 12, "refusals were met with pauses")

	writes := m.metric("idlecount_api_writes_total", "operation", "patch anchor")
	for _, pod := range g.view.in(factory.Idle) {
		g.delete(pod)
		break
	}
	await(t, "the pod is replaced", func() bool {
		return m.metric("idlecount_pods_created_total", "result", "ok") == 5 && m.metric("idlecount_pods", "state", "idle") == 4
	})
	require.Equal(t, writes, m.metric("idlecount_api_writes_total", "operation", "patch anchor"), "an old refusal isn't brought up again")
}

// quota bounds the pods of the namespace, and waits until the quota controller has seen that, before which nothing is admitted.
func (g *ground) quota(pods string) {
	g.t.Helper()
	quotas := g.client.CoreV1().ResourceQuotas(g.namespace)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "two-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
	}
	_, err := quotas.Create(g.t.Context(), quota, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = quotas.Update(g.t.Context(), quota, metav1.UpdateOptions{})
	}
	require.NoError(g.t, err)
	await(g.t, "the quota is in force", func() bool {
		quota, err := quotas.Get(g.t.Context(), "two-pods", metav1.GetOptions{})
		return err == nil && quota.Status.Hard.Pods().String() == pods
	})
}

// awaitEvent waits for an event of a pool's anchor.
func (g *ground) awaitEvent(reason, message string) {
	g.t.Helper()
	await(g.t, "an event "+reason+": "+message, func() bool {
		events, err := g.client.CoreV1().Events(g.namespace).List(g.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ConfigMap,reason=" + reason})
		require.NoError(g.t, err)
		for _, event := range events.Items {
			if strings.Contains(event.Message, message) {
				return true
			}
		}
		return false
	})
}

func TestAMissingNamespaceIsNamedAndWaitedFor(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	name := g.namespace + "-late"
	c := g.config("idle_count = 1", kwok)
	c.Runners[0].Kubernetes.Namespace = name
	m := g.manage(c)
	m.log.await(t, fmt.Sprintf(`namespaces \"%s\" not found`, name))
	await(t, "the metric says that the pool is short", func() bool {
		return m.metric("idlecount_pool_shortfall", "reason", "API") == 1 && m.metric("idlecount_pods_wanted") == 1
	})
	require.Contains(t, m.get("/readyz").body, "isn't kept: API: namespaces")
	_, err := g.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = g.client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	await(t, "the pool is filled", func() bool { return m.metric("idlecount_pods", "state", "idle") == 1 })
	await(t, "the manager is ready", func() bool { return m.get("/readyz").code == 200 && m.metric("idlecount_pool_shortfall") == 0 })
}

func TestPodsWithoutANodeAreHeldAndTheReasonIsTheSchedulers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	m := g.manage(g.config("idle_count = 3", nowhere))
	short := g.view.awaitShortfall(t, status.Unschedulable)
	require.Contains(t, short.Message, "nodes are available")
	g.view.await(t, "all that is wanted is made: an autoscaler has to see it", func() bool { return len(g.view.in(factory.Warming)) == 3 })
	require.Zero(t, m.metric("idlecount_pods_deleted_total"))
}

func TestAnImageThatCantBePulledLeavesOneProbe(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	m := g.manage(g.config("idle_count = 3", nowhere))
	g.view.await(t, "three pods are made", func() bool { return len(g.view.in(factory.Warming)) == 3 })
	for _, pod := range g.view.in(factory.Warming) {
		g.kubeletIfThere(pod, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "job:1": ErrImagePull: job:1: not found`,
			}}}}
		})
	}
	short := g.view.awaitShortfall(t, status.ImagePull)
	require.Equal(t, "job:1: not found", short.Message)
	g.view.await(t, "one pod is left", func() bool { return len(g.view.all()) == 1 })
	await(t, "the metric says why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "blocked") == 2 })
	require.Equal(t, 3, m.metric("idlecount_pods_created_total"))

	for _, probe := range g.view.all() {
		g.kubelet(probe, ready)
	}
	g.view.await(t, "the pool is filled once the probe is ready", func() bool { return len(g.view.in(factory.Idle, factory.Warming)) == 3 })
	for _, pod := range g.view.in(factory.Warming) {
		g.kubelet(pod, ready)
	}
	g.view.awaitPods(t, 3, factory.Idle)
	g.view.awaitNoShortfall(t)
}

// TestAnImageThatDoesNotExistIsNamedByTheKubelet has the words of a real kubelet.
func TestAnImageThatDoesNotExistIsNamedByTheKubelet(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKubelet()
	c := g.config("idle_count = 3", `pull_policy = "always"`)
	c.Runners[0].Kubernetes.IdleEntrypointImage = "127.0.0.1:5990/no/such/image:1"
	m := g.manage(c)
	short := g.view.awaitShortfall(t, status.ImagePull)
	require.Contains(t, short.Message, "127.0.0.1:5990/no/such/image:1")
	require.NotContains(t, short.Message, "Back-off")
	g.view.await(t, "one probe is left", func() bool { return len(g.view.in(factory.Warming)) == 1 })
	require.LessOrEqual(t, m.metric("idlecount_pods_created_total"), 4)
}

// kubeletIfThere writes the status of a pod that may be gone already.
func (g *ground) kubeletIfThere(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	pods := g.client.CoreV1().Pods(g.namespace)
	for {
		fresh, err := pods.Get(g.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return
		}
		change(&fresh.Status)
		if _, err = pods.UpdateStatus(g.t.Context(), fresh, metav1.UpdateOptions{}); err == nil {
			return
		}
	}
}

func TestAPodThatFailsIsRemovedAndItsWordsAreKept(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	m := g.manage(g.config("idle_count = 1", nowhere))
	g.view.await(t, "a pod is made", func() bool { return len(g.view.in(factory.Warming)) == 1 })
	first := g.view.in(factory.Warming)
	for _, pod := range first {
		g.kubelet(pod, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 126, Reason: "ContainerCannotRun", Message: "exec format error"},
			}}}
		})
	}
	short := g.view.awaitShortfall(t, status.Crash)
	require.Equal(t, "container build ended with code 126 (ContainerCannotRun): exec format error", short.Message)
	g.awaitEvent("PodFailed", "exec format error")
	g.view.await(t, "another one is made after a pause", func() bool {
		warming := g.view.in(factory.Warming)
		for name := range first {
			return len(warming) == 1 && warming[name] == nil
		}
		return false
	})
	for _, pod := range g.view.in(factory.Warming) {
		g.kubelet(pod, ready)
	}
	g.view.awaitNoShortfall(t)
	require.Equal(t, 1, m.metric("idlecount_pods_deleted_total", "reason", "failed"))
}

func TestExpiredPodsAreReplaced(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	m := g.manage(g.config("idle_count = 1", nowhere))
	g.view.await(t, "a pod is made", func() bool { return len(g.view.in(factory.Warming)) == 1 })
	first := g.view.in(factory.Warming)
	for _, pod := range first {
		g.kubelet(pod, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodSucceeded
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		})
	}
	g.view.await(t, "it is replaced at once", func() bool {
		warming := g.view.in(factory.Warming)
		for name := range first {
			return len(g.view.all()) == 1 && len(warming) == 1 && warming[name] == nil
		}
		return false
	})
	await(t, "the metric says why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "expired") == 1 })
}

// TestARunnerThatLeavesTheFileLeavesNothingBehind has two runners in two namespaces; the second one leaves, and with it
// the only mention of its namespace.
func TestARunnerThatLeavesTheFileLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	leaving := newGround(t)
	both := g.config("idle_count = 1", kwok)
	both.Runners = append(both.Runners, leaving.config("idle_count = 2", kwok).Runners...)
	m := g.manage(both)
	g.view.awaitPods(t, 1, factory.Idle)
	leaving.view.awaitPods(t, 2, factory.Idle)
	claimed := leaving.claim(leaving.config("idle_count = 2", kwok), "1")
	leaving.view.await(t, "the claimed pod is replaced", func() bool {
		return len(leaving.view.in(factory.Idle)) == 2 && len(leaving.view.in(factory.Claimed)) == 1
	})
	m.stop()

	// The anchors are seen long after the pods are: nothing can be done about those at first.
	m = g.manage(g.config("idle_count = 1", kwok), lagging(500*time.Millisecond, "configmaps"))
	leaving.view.await(t, "only the claimed pod is left, and its pool says so", func() bool {
		for _, s := range leaving.view.statuses() {
			if s.Policy != "removed" || s.Want != 0 {
				return false
			}
		}
		return len(leaving.view.all()) == 1 && len(leaving.view.in(factory.Claimed)) == 1 && len(leaving.view.statuses()) == 1
	})
	require.Equal(t, leaving.namespace, m.leaseNote(g, leaving.namespace), "its namespace is remembered while something is in it")
	leaving.delete(claimed)
	leaving.view.await(t, "nothing is left", func() bool { return len(leaving.view.all()) == 0 && len(leaving.view.statuses()) == 0 })
	await(t, "the namespace is forgotten", func() bool { return m.leaseNote(g, leaving.namespace) == "" })
	g.view.awaitPods(t, 1, factory.Idle)
	require.Zero(t, m.metric("idlecount_pods_deleted_total", "reason", "surplus"))
}

// leaseNote is a namespace if the lease has noted it.
func (m *manager) leaseNote(g *ground, namespace string) string {
	lease, err := g.client.CoordinationV1().Leases(g.namespace).Get(g.t.Context(), "idlecount", metav1.GetOptions{})
	require.NoError(g.t, err)
	for noted := range strings.SplitSeq(lease.Annotations["idlecount.dev/namespaces"], ",") {
		if noted == namespace {
			return noted
		}
	}
	return ""
}

func TestPoolsOfAnotherManagerAreLeftAlone(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	other := &ground{t: t, rest: g.rest, client: g.client, namespace: g.namespace, token: "o" + rand.String(8), view: g.view}
	first := g.manage(g.config("idle_count = 2", kwok))
	g.view.awaitPods(t, 2, factory.Idle)
	// Another installation with a runner of its own and a lease of its own, in the same namespace.
	second := g.manage(other.config("idle_count = 1", kwok), leaseNamed("another"))
	g.view.awaitPods(t, 3, factory.Idle)
	await(t, "each has looked at its pool", func() bool {
		return first.metric("idlecount_pods", "state", "idle") == 2 && second.metric("idlecount_pods", "state", "idle") == 1
	})
	require.Zero(t, first.metric("idlecount_pods_deleted_total"))
	require.Zero(t, second.metric("idlecount_pods_deleted_total"))
	require.Len(t, g.view.statuses(), 2)
}

func leaseNamed(name string) option {
	return func(o *pool.Options, _ *rest.Config) { o.LeaseName = name }
}

func TestAPausedPoolIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 2", kwok)
	m := g.manage(c)
	idle := g.view.awaitPods(t, 2, factory.Idle)
	pause := func(value string) {
		for name := range g.view.statuses() {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, factory.AnnotationPaused, value)
			_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	before := m.metric("idlecount_reconcile_seconds")
	pause(`"true"`)
	await(t, "the manager has seen it", func() bool { return m.metric("idlecount_reconcile_seconds") > before })
	for _, pod := range idle {
		g.delete(pod)
	}
	g.view.await(t, "the pods are gone", func() bool { return len(g.view.all()) == 0 })
	await(t, "the manager has seen it", func() bool { return m.metric("idlecount_pods", "state", "idle") == 0 })
	require.Equal(t, 2, m.metric("idlecount_pods_created_total"))
	pause("null")
	g.view.awaitPods(t, 2, factory.Idle)
}

func TestThePolicyOfThePeriodIsInForce(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	g.manage(g.config("idle_count = 1", kwok, `
    [[runners.kubernetes.idle_policy]]
      periods = ["* * * * *"]
      timezone = "UTC"
      idle_count = 3
      idle_time = "20m"`))
	for _, pod := range g.view.awaitPods(t, 3, factory.Idle) {
		require.Equal(t, "20m0s", pod.Annotations[factory.AnnotationIdleTime])
	}
	for _, s := range g.view.statuses() {
		require.Equal(t, "idle_policy[0]", s.Policy)
		require.Nil(t, s.NextChange, "a policy that always holds never changes")
	}
}

// TestThePlaceOfAPodThatADriverGivesUpIsLeftToIt: below a tight quota a driver deletes an idle pod for the sake of its job's.
// Were the pool refilled at once, the driver would give up one pod after another, and its job might wait all the same.
func TestThePlaceOfAPodThatADriverGivesUpIsLeftToIt(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	g.quota("2")
	m := g.manage(g.config("idle_count = 3", kwok))
	g.view.awaitShortfall(t, status.Quota)
	g.quota("3")
	g.view.awaitPods(t, 3, factory.Idle)
	g.view.awaitNoShortfall(t)
	await(t, "the manager has seen them", func() bool { return m.metric("idlecount_pods", "state", "idle") == 3 })

	tries := m.metric("idlecount_pods_created_total")
	giveUp := func() {
		for _, pod := range g.view.in(factory.Idle) {
			g.delete(pod)
			return
		}
	}
	giveUp()
	await(t, "the manager has seen that one is gone", func() bool { return m.metric("idlecount_pods", "state", "idle") == 2 })
	require.Equal(t, tries, m.metric("idlecount_pods_created_total"), "the pool doesn't try to get the place")
	job := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "build", Image: "job:1"}}},
	}
	await(t, "the job has its pod", func() bool {
		_, err := g.client.CoreV1().Pods(g.namespace).Create(t.Context(), job, metav1.CreateOptions{})
		if err != nil && len(g.view.in(factory.Idle)) == 3 {
			giveUp() // the quota's controller has taken longer than the pool waits
		}
		return err == nil
	})
	g.view.awaitShortfall(t, status.Quota)
	require.NoError(t, g.client.CoreV1().Pods(g.namespace).Delete(t.Context(), "job", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	g.view.awaitPods(t, 3, factory.Idle)
}
