package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func pod(labels map[string]string, node, message string, after time.Duration) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Labels: labels, CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.NodeName = node
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(after))}
	if node == "" {
		c.Status, c.Message = corev1.ConditionFalse, message
	}
	p.Status.Conditions = []corev1.PodCondition{c}
	return p
}

func TestRowsTellHeldFromPendingAndHowLongJobsWaited(t *testing.T) {
	s := status.Status{
		Runner: "ci", Strategy: "pause", Policy: "default", Want: 3, Hold: 3, Lease: "i/l",
		Trouble: &status.Trouble{Reason: status.Quota, Message: "no room", Since: noon.Add(-time.Minute)},
	}
	anchor := func(name, label string) corev1.ConfigMap {
		return corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, Labels: map[string]string{factory.LabelCapacity: label, factory.LabelRunner: "abc"}},
			Data:       map[string]string{factory.AnchorStatusKey: s.Encode()},
		}
	}
	pause := map[string]string{factory.LabelCapacity: "abc-pause", factory.LabelGitLabManagerID: "abc"}
	job := map[string]string{factory.LabelGitLabManagerID: "abc"}
	gone := pod(pause, "a", "", 0)
	gone.DeletionTimestamp = new(metav1.NewTime(noon))
	warm := pod(job, "a", "", time.Hour)
	warm.Annotations = map[string]string{factory.AnnotationWarmth: "warm"}
	rows := status.Rows([]corev1.ConfigMap{anchor("abc-pause", "abc-pause"), anchor("copy", "abc-pause")},
		[]corev1.Pod{pod(pause, "a", "", 0), pod(pause, "b", "", 0), pod(pause, "", "0/3 nodes\nare available", 0), gone},
		[]corev1.Pod{pod(job, "a", "", time.Second), pod(job, "b", "", 3*time.Second), pod(job, "c", "", 2*time.Second), warm, pod(pause, "a", "", time.Hour)})
	require.Len(t, rows, 1)
	r := rows[0]
	require.Equal(t, []int{3, 3, 2, 1, 4}, []int{r.Want, r.Hold, r.Held, r.Pending, r.Jobs})
	require.InDelta(t, 2, *r.ScheduledMedian, 0)
	require.InDelta(t, 3, *r.ScheduledMost, 0)
	require.Equal(t, "Quota for 1m0s: no room; 1 waits for a node: 0/3 nodes are available", r.Reason(noon))
}

func TestARowOfABufferHasWhatItsAutoscalerSays(t *testing.T) {
	row := func(s status.Status) status.Row {
		s.Strategy = "buffer"
		rows := status.Rows([]corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "abc-pause", Labels: map[string]string{factory.LabelCapacity: "abc-pause", factory.LabelRunner: "abc"}},
			Data:       map[string]string{factory.AnchorStatusKey: s.Encode()},
		}}, nil, nil)
		require.Len(t, rows, 1)
		return rows[0]
	}
	r := row(status.Status{Want: 3, Hold: 3, Held: 1})
	require.Equal(t, []int{1, 2}, []int{r.Held, r.Pending})
	require.Equal(t, "the autoscaler doesn't provide for 2 yet", r.Reason(noon))
	r = row(status.Status{Want: 3, Hold: 3, Trouble: &status.Trouble{Reason: status.Buffer, Message: "it says no", Since: noon}})
	require.Equal(t, "Buffer for 0s: it says no", r.Reason(noon))
	r = row(status.Status{Want: 3, Hold: 3, Held: 3})
	require.Empty(t, r.Reason(noon))
}

// TestRowsDontChangeWithTheOrderOfPods: a watch that prints only what is news would print each time.
func TestRowsDontChangeWithTheOrderOfPods(t *testing.T) {
	labels := map[string]string{factory.LabelCapacity: "abc-pause"}
	anchor := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "abc-pause", Labels: labels}}
	a, b := pod(labels, "", "0/3 nodes are available", 0), pod(labels, "", "0/4 nodes are available", 0)
	one := status.Rows([]corev1.ConfigMap{anchor}, []corev1.Pod{a, b}, nil)
	require.Equal(t, one, status.Rows([]corev1.ConfigMap{anchor}, []corev1.Pod{b, a}, nil))
	require.Equal(t, "0/3 nodes are available", one[0].Waits)
	require.Regexp(t, "^API: read the status in ConfigMap ci/abc-pause: .*; 2 wait for a node", one[0].Reason(noon), "nobody knows since when")
}

func TestReasonsOfWhatPeopleHaveSaid(t *testing.T) {
	for want, r := range map[string]status.Row{
		"": {Want: 2, Hold: 2, Held: 2},
		"1 more than wanted, until its idle time is over":                      {Want: 2, Hold: 3, Held: 3},
		"paused; `idlecount resume` ends that":                                 {Want: 2, Hold: 5, Held: 5, Paused: true},
		"drained; `idlecount resume` holds room again":                         {Drained: true},
		"drained: pause pods go (3 left); `idlecount resume` holds room again": {Drained: true, Held: 1, Pending: 2},
	} {
		require.Equal(t, want, r.Reason(noon))
	}
}

// TestAJobIsOneOfTheCapacityThatItIsFor, and of no other one of its runner, as the manager has it.
func TestAJobIsOneOfTheCapacityThatItIsFor(t *testing.T) {
	anchor := func(namespace, name, image string) corev1.ConfigMap {
		return corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{factory.LabelCapacity: name, factory.LabelRunner: "abc"}},
			Data:       map[string]string{factory.AnchorStatusKey: status.Status{Strategy: "pause", Image: image}.Encode()},
		}
	}
	job := func(image string, waited time.Duration) corev1.Pod {
		p := pod(map[string]string{factory.LabelGitLabManagerID: "abc"}, "a", "", waited)
		p.Spec.Containers = []corev1.Container{{Name: "helper", Image: "big:1"}, {Name: "build", Image: image}}
		return p
	}
	rows := status.Rows(
		[]corev1.ConfigMap{anchor("ci", "abc-pause", ""), anchor("ci", "abc-pause-1", "big:1"), anchor("other", "abc-pause", "")}, nil,
		[]corev1.Pod{job("big:1", time.Minute), job("small:1", time.Second), job("alpine", 3*time.Second)})
	require.Len(t, rows, 3)
	require.Equal(t, []int{2, 1, 0}, []int{rows[0].Jobs, rows[1].Jobs, rows[2].Jobs})
	require.InDelta(t, 3, *rows[0].ScheduledMost, 0)
	require.InDelta(t, 60, *rows[1].ScheduledMost, 0)
	require.Nil(t, rows[2].ScheduledMost)
}

// TestPausePodsThatCantRunHoldTheirNode all the same, and a line says so.
func TestPausePodsThatCantRunHoldTheirNode(t *testing.T) {
	labels := map[string]string{factory.LabelCapacity: "abc-pause"}
	anchor := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "abc-pause", Labels: labels},
		Data:       map[string]string{factory.AnchorStatusKey: status.Status{Strategy: "pause", Want: 3, Hold: 3}.Encode()},
	}
	waiting := func(reason, message string) corev1.Pod {
		p := pod(labels, "a", "", 0)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		return p
	}
	starts, pulls, never := waiting("ContainerCreating", ""), waiting("ImagePullBackOff", "Back-off pulling image"), waiting("InvalidImageName", "")
	r := status.Rows([]corev1.ConfigMap{anchor}, []corev1.Pod{never, starts, pulls}, nil)[0]
	require.Equal(t, []int{3, 0, 2}, []int{r.Held, r.Pending, r.Stuck})
	require.Equal(t, "2 hold a node and can't run: ImagePullBackOff: Back-off pulling image", r.Reason(noon))
	r = status.Rows([]corev1.ConfigMap{anchor}, []corev1.Pod{never}, nil)[0]
	require.Equal(t, "1 holds a node and can't run: InvalidImageName", r.Reason(noon))
}
