package capacity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// TestARuleByTheLabelsOfGitLabsJobsHoldsForPausePodsToo: "one job per node", by a label that GitLab gives each job with a value of
// its own. Pause pods keep away from each other and from jobs, and jobs take their place.
func TestARuleByTheLabelsOfGitLabsJobsHoldsForPausePodsToo(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.nodes(2)
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`, `
    [[runners.kubernetes.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution]]
      topology_key = "kubernetes.io/hostname"
      [[runners.kubernetes.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.label_selector.match_expressions]]
        key = "job.runner.gitlab.com/pod"
        operator = "Exists"`)
	g.keep(cfg)
	spread := func(selector string, nodes, pending int) func() bool {
		return func() bool {
			on, waits := nodesOf(g.pods(selector))
			return len(on) == nodes && waits == pending
		}
	}
	const jobs = "job.runner.gitlab.com/pod,!" + factory.LabelCapacity
	await(t, "each pause pod has a node of its own", spread(factory.LabelCapacity, 2, 0))
	g.job(cfg, "one")
	await(t, "a job takes the place of one", spread(jobs, 1, 0))
	await(t, "which finds no other", spread(factory.LabelCapacity, 1, 1))
	g.job(cfg, "two")
	await(t, "a second job has the other node", spread(jobs, 2, 0))
	await(t, "and no pause pod is left on one", spread(factory.LabelCapacity, 0, 2))
	g.finish("one")
	await(t, "the node is held again", spread(factory.LabelCapacity, 1, 1))
}

// TestFivePausePodsHoldFiveNodesForFiveJobs: jobs of GitLab's executor of which no two may share a node find five nodes, and
// when the working day is over the cluster can lose them all.
func TestFivePausePodsHoldFiveNodesForFiveJobs(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.nodes(5)
	cfg := g.config(`idle_strategy = "pause"`, `idle_time = "10m"`, onePerNode, `
    [[runners.kubernetes.idle_policy]]
      periods = ["* 8-17 * * mon-fri"]
      timezone = "UTC"
      idle_count = 5`)
	k := g.keep(cfg)
	await(t, "a pause pod has each node", func() bool {
		nodes, pending := nodesOf(g.pods(factory.LabelCapacity))
		return len(nodes) == 5 && pending == 0
	})
	await(t, "and the figures say so", func() bool { return k.metric("idlecount_capacity_pods", "state", "held") == 5 })

	var names []string
	for i := range 5 {
		names = append(names, g.job(cfg, fmt.Sprintf("job-%d", i)).Name)
	}
	await(t, "each job has a node", func() bool {
		nodes, pending := nodesOf(g.pods("job.runner.gitlab.com/pod"))
		return len(nodes) == 5 && pending == 0
	})
	await(t, "five pause pods wait for other nodes", func() bool {
		_, pending := nodesOf(g.pods(factory.LabelCapacity))
		return pending == 5 && k.metric("idlecount_capacity_jobs") == 5
	})
	require.Positive(t, k.metric("idlecount_capacity_preemption_seconds"), "nobody measured how long that took")
	g.finish(names...)
	await(t, "the nodes are held for the next jobs", func() bool {
		nodes, pending := nodesOf(g.pods(factory.LabelCapacity))
		return len(nodes) == 5 && pending == 0
	})

	k.at(time.Date(2026, 3, 2, 18, 0, 0, 0, time.UTC))
	await(t, "what is surplus cools down", func() bool {
		d := g.deployment()
		return d.Annotations[factory.AnnotationSurplusSince] == "2026-03-02T18:00:00Z" && *d.Spec.Replicas == 5
	})
	k.at(time.Date(2026, 3, 2, 18, 10, 0, 0, time.UTC))
	await(t, "no pause pod is left, held or pending", func() bool { return len(g.pods(factory.LabelCapacity)) == 0 })
	require.Zero(t, g.replicas())
	require.NotContains(t, g.deployment().Annotations, factory.AnnotationSurplusSince)
}

func TestWhatIsPendingGoesToo(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	// No node has the test's label: all stay Pending, which is what makes a cluster autoscaler add nodes.
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 3", `idle_time = "0s"`))
	await(t, "three wait for nodes", func() bool {
		_, pending := nodesOf(g.pods(factory.LabelCapacity))
		return pending == 3
	})
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 0", `idle_time = "0s"`))
	await(t, "none is left", func() bool { return len(g.pods(factory.LabelCapacity)) == 0 })
}

// TestAReloadThatChangesNothingWritesNothing, and one that changes the size rolls out in the Deployment that is there.
func TestAReloadThatChangesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	keys := []string{`idle_strategy = "pause"`, "idle_count = 2"}
	k := g.keep(g.config(keys...))
	// A write that conflicts with one of the Deployment's controller is made again, and counts as an error.
	wrote := func() float64 { return k.metric("idlecount_capacity_writes_total", "result", "ok") }
	await(t, "two are there, and all is written", func() bool {
		return len(g.pods(factory.LabelCapacity)) == 2 && k.metric("idlecount_capacity_writes_total", "operation", "patch anchor", "result", "ok") == 1
	})
	before, writes := g.deployment(), wrote()
	k.reload(g.config(keys...))
	k.reload(g.config(append(keys, `poll_timeout = 600`)...))
	k.reload(g.config(append(keys, `helper_memory_request = "100Mi"`)...))
	await(t, "the new size is rolled out", func() bool {
		pods := g.pods(factory.LabelCapacity)
		for _, p := range pods {
			if q := p.Spec.Containers[0].Resources.Requests["memory"]; q.String() != "164Mi" {
				return false
			}
		}
		return len(pods) == 2
	})
	after := g.deployment()
	require.Equal(t, before.UID, after.UID, "another Deployment is no rollout")
	require.Equal(t, before.Generation+1, after.Generation)
	require.InDelta(t, writes+1, wrote(), 0, "one write for one change")

	k.end()
	restarted := g.keep(g.config(append(keys, `helper_memory_request = "100Mi"`)...))
	await(t, "another leader sees what is there", func() bool { return restarted.metric("idlecount_capacity_wanted") == 2 })
	require.Zero(t, restarted.metric("idlecount_capacity_writes_total"))
	require.Equal(t, after.Generation, g.deployment().Generation)
}

func TestTheFactorCountsJobsByGitLabsLabels(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 1", "scale_factor = 2.0", "scale_factor_limit = 5", `idle_time = "0s"`)
	g.keep(cfg)
	for jobs, want := range []int{1, 2, 4, 5} {
		if jobs > 0 {
			g.job(cfg, fmt.Sprintf("job-%d", jobs))
		}
		await(t, fmt.Sprintf("%d for %d jobs", want, jobs), func() bool { return g.replicas() == want })
	}
	g.finish("job-1", "job-2", "job-3")
	await(t, "and down again", func() bool { return g.replicas() == 1 })
}

func TestWhatLeavesTheConfigurationGoes(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 2")
	k := g.keep(cfg)
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 })
	k.end()
	empty := *cfg
	empty.Runners = nil
	g.keep(&empty) // a manager that never knew the runner
	await(t, "nothing is left", func() bool {
		return len(g.pods(factory.LabelCapacity)) == 0 && g.deployment() == nil && g.status() == status.Status{}
	})
	await(t, "and the lease has forgotten the namespace", func() bool {
		lease, err := g.client.CoordinationV1().Leases(g.namespace).Get(t.Context(), "managers", metav1.GetOptions{})
		return err == nil && lease.Annotations["idlecount.dev/capacity-namespaces"] == ""
	})
}

func TestAClassThatJobsCantPreemptHoldsNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `autoscaler = {pause_pod_priority_class_name = "missing-`+g.token+`"}`))
	await(t, "a class that is missing is named", func() bool {
		s := g.status()
		return s.Trouble != nil && s.Trouble.Reason == status.Priority
	})
	require.Contains(t, g.status().Trouble.Message, "the cluster has no PriorityClass missing-"+g.token)

	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high-" + g.token}, Value: 10}
	_, err := g.client.SchedulingV1().PriorityClasses().Create(t.Context(), high, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.client.SchedulingV1().PriorityClasses().Delete(context.WithoutCancel(t.Context()), high.Name, metav1.DeleteOptions{}))
	})
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 2", `autoscaler = {pause_pod_priority_class_name = "high-`+g.token+`"}`))
	await(t, "so is one that is too high", func() bool {
		s := g.status()
		return s.Trouble != nil && s.Trouble.Reason == status.Priority && s.Hold == 0 &&
			strings.Contains(s.Trouble.Message, "a job could never take a pause pod's place")
	})
	require.Empty(t, g.pods(factory.LabelCapacity))

	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "ours is made", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 && g.status().Trouble == nil })
	class, err := g.client.SchedulingV1().PriorityClasses().Get(t.Context(), factory.PausePriorityClass, metav1.GetOptions{})
	require.NoError(t, err)
	require.Negative(t, class.Value)
	require.EqualValues(t, "Never", *class.PreemptionPolicy)
}

// TestQuotaIsGivenBackBeforeJobsAreRefused: jobs that nobody here makes find room in a quota that pause pods would fill.
func TestQuotaIsGivenBackBeforeJobsAreRefused(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.quota("requests.cpu", "5")
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 10", `idle_time = "1h"`, "idle_quota_headroom = 2")
	g.keep(cfg)
	await(t, "room for two jobs is left", func() bool { return g.replicas() == 3 && len(g.pods(factory.LabelCapacity)) == 3 })
	require.Equal(t, status.Quota, g.status().Trouble.Reason)
	for jobs, replicas := range []int{2, 1, 0, 0, 0} {
		g.job(cfg, fmt.Sprintf("job-%d", jobs)) // is not refused
		await(t, fmt.Sprintf("after %d jobs", jobs+1), func() bool { return g.replicas() == replicas && len(g.pods(factory.LabelCapacity)) == replicas })
		await(t, "the quota has counted that", func() bool {
			q, err := g.client.CoreV1().ResourceQuotas(g.namespace).Get(t.Context(), "ci", metav1.GetOptions{})
			used := q.Status.Used["requests.cpu"]
			return err == nil && used.Value() == int64(jobs+1+replicas)
		})
	}
	g.finish("job-0", "job-1", "job-2", "job-3", "job-4")
	await(t, "and comes back", func() bool { return g.replicas() == 3 })
}

// TestAQuotaIsFilledOnce: a quota counts a pod before the watch shows it, and that is not taken for somebody else's pod.
func TestAQuotaIsFilledOnce(t *testing.T) {
	t.Parallel()
	const room = 12
	g := newGround(t)
	g.quota("requests.cpu", strconv.Itoa(room))
	changes, err := g.client.CoreV1().Pods(g.namespace).Watch(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelCapacity})
	require.NoError(t, err)
	defer changes.Stop()
	g.keep(g.config(`idle_strategy = "pause"`, fmt.Sprintf("idle_count = %d", 2*room), "idle_quota_headroom = 0"))
	await(t, "the quota is full", func() bool { return g.replicas() == room && len(g.pods(factory.LabelCapacity)) == room })
	g.setQuota(`"requests.cpu":"14"`)
	await(t, "and full again", func() bool { return g.replicas() == room+2 && len(g.pods(factory.LabelCapacity)) == room+2 })
	noneHasGone(t, changes, room+2)
}

// noneHasGone reads a watch of pods until so many have come, of which none may have gone.
func noneHasGone(t *testing.T, changes watch.Interface, n int) {
	t.Helper()
	seen := map[string]bool{}
	for len(changes.ResultChan()) > 0 || len(seen) < n {
		event := <-changes.ResultChan()
		require.NotEqual(t, watch.Deleted, event.Type, "a pause pod has come and gone")
		pod, ok := event.Object.(*corev1.Pod)
		require.True(t, ok, "%v", event)
		seen[pod.Name] = true
	}
	require.Len(t, seen, n)
}

func (g *ground) setQuota(hard string) {
	g.t.Helper()
	_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Patch(g.t.Context(), "ci", types.MergePatchType, []byte(`{"spec":{"hard":{`+hard+`}}}`), metav1.PatchOptions{})
	require.NoError(g.t, err)
}

// TestCapacitiesThatShareAQuotaDontTakeItFromEachOther: what one may have the other may not.
func TestCapacitiesThatShareAQuotaDontTakeItFromEachOther(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.quota("pods", "10")
	changes, err := g.client.CoreV1().Pods(g.namespace).Watch(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelCapacity})
	require.NoError(t, err)
	defer changes.Stop()
	g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 10", "[[runners.kubernetes.idle_image]]", `image = "other:1"`, "idle_count = 10"))
	each := func() string {
		list, err := g.client.AppsV1().Deployments(g.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var counts []string
		for _, d := range list.Items {
			counts = append(counts, strconv.Itoa(int(*d.Spec.Replicas)))
		}
		slices.Sort(counts)
		return strings.Join(counts, " ")
	}
	await(t, "all but the headroom is theirs", func() bool { return each() == "4 5" && len(g.pods(factory.LabelCapacity)) == 9 })
	g.setQuota(`"pods":"13"`)
	await(t, "and what comes later", func() bool { return each() == "6 6" && len(g.pods(factory.LabelCapacity)) == 12 })
	noneHasGone(t, changes, 12)
}

// TestQuotasCountWhatAdmissionMakesOfAPausePod: the overhead of a runtime class is in no template.
func TestQuotasCountWhatAdmissionMakesOfAPausePod(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	_, err := g.client.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: g.token}, Handler: "runc",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.client.NodeV1().RuntimeClasses().Delete(context.WithoutCancel(t.Context()), g.token, metav1.DeleteOptions{}))
	})
	g.quota("requests.cpu", "6")
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 20", fmt.Sprintf("runtime_class_name = %q", g.token)))
	await(t, "three of 1.5 CPUs, and room for a job", func() bool { return g.replicas() == 3 && len(g.pods(factory.LabelCapacity)) == 3 })
	scaled := func() float64 { return k.metric("idlecount_capacity_writes_total", "operation", "scale deployment") }
	before := scaled()
	g.setQuota(`"requests.cpu":"7500m"`)
	await(t, "and one more", func() bool { return g.replicas() == 4 && len(g.pods(factory.LabelCapacity)) == 4 })
	require.InDelta(t, before+1, scaled(), 0)
}

// TestAPodThatOnlyLooksLikeAPausePodCountsForNothing: whoever may label pods can't hold room back, or have it given back.
func TestAPodThatOnlyLooksLikeAPausePodCountsForNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 })
	fake := g.pods(factory.LabelCapacity)[0].DeepCopy()
	// With the label of the ReplicaSet too it would be one: that adopts it.
	fake.ObjectMeta = metav1.ObjectMeta{Name: "fake", Labels: map[string]string{factory.LabelCapacity: fake.Labels[factory.LabelCapacity]}, Annotations: map[string]string{factory.AnnotationGivenBack: "x"}}
	_, err := g.client.CoreV1().Pods(g.namespace).Create(t.Context(), fake, metav1.CreateOptions{})
	require.NoError(t, err)
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 4"))
	await(t, "four are asked for", func() bool { return g.replicas() == 4 })
	await(t, "and four are pending", func() bool { return k.metric("idlecount_capacity_pods", "state", "pending") == 4 })
}

// TestANamespaceThatIsStrictTakesPausePods: Pod Security "restricted", and a quota that asks for limits.
func TestANamespaceThatIsStrictTakesPausePods(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	_, err := g.client.CoreV1().Namespaces().Patch(t.Context(), g.namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	g.quota("limits.cpu", "20", "limits.memory", "20Gi")
	g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `cpu_limit = "2"`, `helper_cpu_limit = "1"`, `memory_limit = "1Gi"`, `helper_memory_limit = "1Gi"`))
	await(t, "they are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 })
	limits := g.pods(factory.LabelCapacity)[0].Spec.Containers[0].Resources.Limits
	require.Equal(t, "3", limits.Cpu().String())
	require.Nil(t, g.status().Trouble)
}

func TestTheLimitBoundsJobsAndPausePodsTogether(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.configOf("kubernetes", 3, `idle_strategy = "pause"`, "idle_count = 5", `idle_time = "1h"`)
	g.keep(cfg)
	await(t, "the limit holds", func() bool { return g.replicas() == 3 })
	require.Equal(t, status.Limit, g.status().Trouble.Reason)
	g.job(cfg, "job")
	await(t, "a job takes its part of it", func() bool { return g.replicas() == 2 })
}

func TestWhoScalesByHandIsOverruled(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`))
	await(t, "two are there", func() bool { return g.replicas() == 2 })
	for _, n := range []string{"0", "7"} {
		_, err := g.client.AppsV1().Deployments(g.namespace).Patch(t.Context(), g.deployment().Name, types.MergePatchType,
			[]byte(`{"spec":{"replicas":`+n+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		await(t, "two again", func() bool { return g.replicas() == 2 })
	}
}

// TestTheExampleScalesToZero runs examples/scale-to-zero.toml through a Friday, with a clock of its own and real objects.
func TestTheExampleScalesToZero(t *testing.T) {
	g := newGround(t)
	t.Setenv("RUNNER_TOKEN", "glrt-"+g.token)
	here := filepath.Join(t.TempDir(), "here.toml")
	require.NoError(t, os.WriteFile(here, []byte(fmt.Sprintf("[[runners]]\nname = \"ci\"\n[runners.kubernetes]\nnamespace = %q\n", g.namespace)), 0o600))
	cfg, err := config.Load([]string{"../examples/scale-to-zero.toml", here})
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 3, day, hour, minute, 0, 0, berlin) }

	k := g.keep(cfg)
	for _, step := range []struct {
		at      time.Time
		hold    int
		surplus string // since when, as the Deployment has it
		what    string
	}{
		{at(6, 7, 49), 0, "", "Friday night"},
		{at(6, 7, 50), 10, "", "ten minutes before the working day"},
		{at(6, 18, 0), 10, "2026-03-06T17:00:00Z", "what is surplus cools down"},
		{at(6, 18, 14), 10, "2026-03-06T17:00:00Z", "until its time is over"},
		{at(6, 18, 15), 0, "", "and goes"},
		{at(7, 12, 0), 0, "", "on Saturday"},
		{at(9, 7, 50), 10, "", "and on Monday it begins again"},
	} {
		k.at(step.at)
		await(t, step.what, func() bool {
			d := g.deployment()
			if d != nil && d.Annotations[factory.AnnotationSurplusSince] != step.surplus {
				return false
			}
			return g.status().Hold == step.hold && g.replicas() == step.hold && len(g.pods(factory.LabelCapacity)) == step.hold
		})
	}
}

// TestIdlePodsAndPausePodsShareALimit: pods for the hot image, room for the rest.
func TestIdlePodsAndPausePodsShareALimit(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.config("idle_count = 2", "idle_pause_count = 5", `idle_time = "1h"`)
	r := &cfg.Runners[0]
	r.Executor, r.Limit = config.ExecutorCustom, 6
	require.True(t, r.KeepsPods() && r.KeepsCapacity())
	g.keep(cfg)
	await(t, "all fit", func() bool { return g.replicas() == 5 })
	shape, err := factory.ShapeOf(*r, factory.Job{})
	require.NoError(t, err)
	for i := range 2 {
		pod := factory.IdlePod(*r, shape, fmt.Sprintf("idle-%d", i), time.Hour, factory.Owner{})
		pod.OwnerReferences = nil
		_, err := g.client.CoreV1().Pods(g.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	await(t, "idle pods come first", func() bool { return g.replicas() == 4 })
	g.job(cfg, "job")
	await(t, "and jobs", func() bool { return g.replicas() == 3 })
}

// TestTheRightsThatThePackageNamesAreEnough: to make, to roll out, to scale, to see a quota, and to take all away.
func TestTheRightsThatThePackageNamesAreEnough(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.quota("pods", "10")
	k := g.asAccount().keep(g.config(`idle_strategy = "pause"`, "idle_count = 20", `idle_time = "0s"`))
	await(t, "all that the quota leaves is held", func() bool { return g.replicas() == 9 && len(g.pods(factory.LabelCapacity)) == 9 })
	before := g.deployment()
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`, `helper_memory_request = "1Mi"`))
	await(t, "it is rolled out and scaled", func() bool {
		return g.replicas() == 2 && g.deployment().Annotations[factory.AnnotationTemplate] != before.Annotations[factory.AnnotationTemplate]
	})
	k.reload(&config.Config{})
	await(t, "and taken away", func() bool { return g.deployment() == nil && g.status() == status.Status{} })
	require.NotContains(t, k.log.String(), "forbidden")
}
