package claim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/factory"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// readyPod is an idle pod that has been ready for some time.
func readyPod(name string, since time.Duration) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name),
		Labels:      map[string]string{factory.LabelState: factory.StateIdle},
		Annotations: map[string]string{factory.AnnotationIdleTime: "30m0s"},
	}}
	pod.Spec.NodeName = "node"
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-since))}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", Ready: true}, {Name: "helper", Ready: true}}
	return pod
}

// with changes a pod.
func with(pod corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&pod)
	return pod
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func TestRankSaysWhichPodMayBeClaimed(t *testing.T) {
	const ready, warming, expiring, none = "ready", "warming", "expiring", "none"
	for sentence, test := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"a ready pod": {readyPod("p", time.Minute), ready},
		"a ready pod that its idle timer ends in eleven seconds": {readyPod("p", 30*time.Minute-11*time.Second), ready},
		"a ready pod that its idle timer ends in nine seconds":   {readyPod("p", 30*time.Minute-9*time.Second), expiring},
		"a ready pod whose idle time is over":                    {readyPod("p", time.Hour), expiring},
		"an old pod without an idle timer": {with(readyPod("p", 24*time.Hour), func(p *corev1.Pod) {
			p.Annotations[factory.AnnotationIdleTime] = "0s"
		}), ready},
		"a short idle time has a short margin": {with(readyPod("p", 8*time.Second), func(p *corev1.Pod) {
			p.Annotations[factory.AnnotationIdleTime] = "10s"
		}), ready},
		"a claimed pod": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			p.Labels[factory.LabelState] = factory.StateClaimed
		}), none},
		"a pod that names a job though its state says idle": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			p.Labels[factory.LabelJob] = "1"
		}), none},
		"a pod without a state and without an owner is not unclaimed": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			delete(p.Labels, factory.LabelState)
		}), none},
		"a pod that is being deleted": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: noon}
		}), none},
		"a pod that is being preempted": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
		}), none},
		"an expired pod": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
		}), none},
		"a pod that waits for a node": {with(readyPod("p", 0), func(p *corev1.Pod) {
			*p = corev1.Pod{ObjectMeta: p.ObjectMeta}
			p.Status.Phase = corev1.PodPending
		}), warming},
		"a pod whose containers start": {with(readyPod("p", 0), func(p *corev1.Pod) {
			notReady(p)
			p.Status.ContainerStatuses[1].Ready = false
		}), warming},
		"a pod of a node that stopped answering reads as not ready with containers that are": {with(readyPod("p", time.Minute), notReady), none},
		"a pod one of whose containers has ended": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			notReady(p)
			p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "helper", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
		}), none},
		"a pod whose init container failed": {with(readyPod("p", time.Minute), func(p *corev1.Pod) {
			notReady(p)
			p.Status.Phase = corev1.PodPending
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
		}), none},
	} {
		t.Run(sentence, func(t *testing.T) {
			found := rank([]corev1.Pod{test.pod}, nil, noon, rand.New(rand.NewPCG(1, 2)))
			got := none
			switch {
			case len(found.ready) == 1:
				got = ready
			case len(found.warming) == 1:
				got = warming
			case found.expiring == 1:
				got = expiring
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestRankLeavesOutWhatWasTried(t *testing.T) {
	found := rank([]corev1.Pod{readyPod("a", 0), readyPod("b", 0)}, []types.UID{"a"}, noon, rand.New(rand.NewPCG(1, 2)))
	require.Len(t, found.ready, 1)
	require.Equal(t, "b", found.ready[0].Name)
}

func TestRankPutsWarmingPodsThatHaveComeFarFirst(t *testing.T) {
	pending := func(name, node string) corev1.Pod {
		return with(readyPod(name, 0), func(p *corev1.Pod) {
			notReady(p)
			p.Status.Phase, p.Spec.NodeName, p.Status.ContainerStatuses = corev1.PodPending, node, nil
		})
	}
	running := with(readyPod("running", 0), func(p *corev1.Pod) { notReady(p); p.Status.ContainerStatuses[0].Ready = false })
	for seed := range uint64(20) {
		found := rank([]corev1.Pod{pending("unscheduled", ""), pending("scheduled", "node"), running}, nil, noon, rand.New(rand.NewPCG(seed, 0)))
		var names []string
		for _, p := range found.warming {
			names = append(names, p.Name)
		}
		require.Equal(t, []string{"running", "scheduled", "unscheduled"}, names)
	}
}

// Claimers that look at the same moment get the same list. If all tried its first pod, all but one would lose.
func TestRankStartsAnywhere(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, readyPod(name, 0))
	}
	first := map[string]int{}
	for seed := range uint64(400) {
		first[rank(pods, nil, noon, rand.New(rand.NewPCG(seed, 1))).ready[0].Name]++
	}
	require.Len(t, first, 4)
	for name, n := range first {
		require.Greater(t, n, 50, "pod %s is first too seldom", name)
	}
}

func TestOwnPodOfAJob(t *testing.T) {
	claimed := func(name string, change func(*corev1.Pod)) corev1.Pod {
		return with(readyPod(name, time.Minute), func(p *corev1.Pod) {
			p.Labels = map[string]string{factory.LabelState: factory.StateClaimed, factory.LabelJob: "1", factory.LabelShape: "s"}
			if change != nil {
				change(p)
			}
		})
	}
	for sentence, test := range map[string]struct {
		pods []corev1.Pod
		skip []types.UID
		keep string
		drop []string
	}{
		"none":                         {},
		"one that runs":                {pods: []corev1.Pod{claimed("a", nil)}, keep: "a"},
		"one that ended":               {pods: []corev1.Pod{claimed("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, drop: []string{"a"}},
		"one that is deleted already":  {pods: []corev1.Pod{claimed("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })}},
		"one of another shape":         {pods: []corev1.Pod{claimed("a", func(p *corev1.Pod) { p.Labels[factory.LabelShape] = "t" })}, drop: []string{"a"}},
		"one that was tried":           {pods: []corev1.Pod{claimed("a", nil)}, skip: []types.UID{"a"}},
		"two: the ready one is kept":   {pods: []corev1.Pod{claimed("a", notReady), claimed("b", nil)}, keep: "b", drop: []string{"a"}},
		"two ready: the older is kept": {pods: []corev1.Pod{claimed("a", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon) }), claimed("b", nil)}, keep: "b", drop: []string{"a"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			keep, drop := own(test.pods, "s", test.skip)
			kept := ""
			if keep != nil {
				kept = keep.Name
			}
			var dropped []string
			for _, p := range drop {
				dropped = append(dropped, p.Name)
			}
			slices.Sort(dropped)
			require.Equal(t, test.keep, kept)
			require.Equal(t, test.drop, dropped)
		})
	}
}
