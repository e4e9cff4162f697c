package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/factory"
)

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

// stock is an idle pod that has been ready for so long; 0 = it still starts.
func stock(name string, since time.Duration, requests ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{factory.LabelState: factory.StateIdle}}}
	pod.Spec.Containers = []corev1.Container{{Name: "build", Resources: corev1.ResourceRequirements{Requests: quantities(requests...)}}}
	pod.Status.Phase = corev1.PodPending
	if since > 0 {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-since)),
		}}
	}
	return pod
}

// pausing is a pause pod, on a node where one is named.
func pausing(name, node string, requests ...string) corev1.Pod {
	pod := stock(name, 0, requests...)
	pod.Labels, pod.Spec.NodeName = map[string]string{factory.LabelCapacity: "abc-pause"}, node
	return pod
}

func TestWhichPodsAreGivenBack(t *testing.T) {
	given := pausing("given", "n")
	given.Annotations = map[string]string{factory.AnnotationGivenBack: "2026-03-02T12:00:00Z"}
	claimed := stock("claimed", time.Hour, "cpu=1")
	claimed.Labels[factory.LabelState] = factory.StateClaimed
	ending := stock("ending", time.Hour, "cpu=1")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for sentence, test := range map[string]struct {
		pods  []corev1.Pod
		short corev1.ResourceList
		want  string
	}{
		"one for one, the oldest":                    {[]corev1.Pod{stock("a", 1), stock("b", time.Hour), stock("c", time.Minute)}, quantities("pods=1"), "b"},
		"one that still starts before any":           {[]corev1.Pod{stock("a", time.Hour), stock("b", 0)}, quantities("pods=1"), "b"},
		"as many as are needed":                      {[]corev1.Pod{stock("a", 1, "cpu=1"), stock("b", 2, "cpu=1"), stock("c", 3, "cpu=1")}, quantities("requests.cpu=1500m"), "c b"},
		"a large one alone where it suffices":        {[]corev1.Pod{stock("a", 2, "cpu=100m"), stock("b", 1, "cpu=2")}, quantities("requests.cpu=2"), "b"},
		"none that doesn't count":                    {[]corev1.Pod{stock("a", 2), stock("b", 1, "cpu=1")}, quantities("requests.cpu=1"), "b"},
		"none where all of them would not do":        {[]corev1.Pod{stock("a", 2, "cpu=1"), stock("b", 1, "cpu=1")}, quantities("requests.cpu=3"), ""},
		"none of a job, none that is ending already": {[]corev1.Pod{claimed, ending}, quantities("pods=1"), ""},
		"room before any pod that serves a job":      {[]corev1.Pod{stock("a", time.Hour), stock("b", 0), pausing("c", "n")}, quantities("pods=1"), "c"},
		"first the room that is none yet":            {[]corev1.Pod{pausing("a", "n"), pausing("b", "")}, quantities("pods=1"), "b"},
		"no room twice":                              {[]corev1.Pod{given, pausing("a", "n")}, quantities("pods=1"), "a"},
		"room, and what is lacking then":             {[]corev1.Pod{stock("a", 1, "cpu=1"), pausing("b", "n", "cpu=1")}, quantities("requests.cpu=2"), "b a"},
		"none beyond the bound":                      {[]corev1.Pod{stock("a", 1), stock("b", 1), stock("c", 1), stock("d", 1)}, quantities("pods=4"), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			var names []string
			for _, pod := range surrender(test.pods, test.short, 3) {
				names = append(names, pod.Name)
			}
			require.Equal(t, test.want, strings.Join(names, " "))
		})
	}
}

func TestHowOftenRoomIsMade(t *testing.T) {
	now := time.Now()
	tight := func(used string) diagnosis.Quota {
		return diagnosis.Quota{Used: quantities("pods=" + used), Short: quantities("pods=1")}
	}
	var r room
	require.Equal(t, maxGivenBack, r.next(tight("10"), now))
	r = room{given: 3, used: quantities("pods=10"), until: now.Add(roomWait)}
	require.Zero(t, r.next(tight("10"), now), "they are still being counted")
	stuck := r
	require.Equal(t, -1, stuck.next(tight("10"), now.Add(roomWait+1)), "the quota doesn't count them")
	require.Equal(t, -1, stuck.next(tight("8"), now.Add(time.Hour)), "and isn't asked again")
	first := r
	first.given, first.part = 1, true
	require.Zero(t, first.next(tight("10"), now), "whether it counts one is still to be seen")
	require.Equal(t, maxGivenBack-1, first.next(tight("9"), now), "it does, so the others follow at once")
	require.Zero(t, r.next(tight("8"), now), "others may come; it is tried on")
	require.Equal(t, maxGivenBack-3, r.next(tight("10"), now.Add(roomWait+1)), "somebody else has taken the room")
	r.given = maxGivenBack
	require.Equal(t, -1, r.next(tight("10"), now.Add(roomWait+1)))
	require.Equal(t, -1, new(room).next(diagnosis.Quota{}, now), "it isn't known what is short")
}

func TestAQuotaThatLeavesOutSomeOfOurPodsIsSeen(t *testing.T) {
	ending := stock("c", 1)
	ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	pods := []corev1.Pod{stock("a", 1, "cpu=1"), pausing("b", "n", "cpu=1"), ending}
	require.False(t, uncounted(pods, quantities("pods=2", "requests.cpu=2")))
	require.True(t, uncounted(pods, quantities("pods=1")))
	require.True(t, uncounted(pods, quantities("pods=9", "requests.cpu=1500m")))
}
