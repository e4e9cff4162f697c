package claim

import (
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/factory"
)

// candidates are the pods of a list that a job could take: in ready those that can be used at once, in warming those that
// still start. Each is in random order, so that jobs that look at the same moment don't all try the same pod first.
type candidates struct {
	ready, warming []*corev1.Pod
	expiring       int // ready, but about to end by their idle timer
}

// rank sorts pods into candidates at a time. It is the only place that says which pod may be claimed.
func rank(pods []corev1.Pod, skip []types.UID, now time.Time, random *rand.Rand) candidates {
	var c candidates
	for i := range pods {
		pod := &pods[i]
		if !claimable(pod) || slices.Contains(skip, pod.UID) {
			continue
		}
		switch factory.PhaseOf(pod) {
		case factory.Idle:
			if expiresWithin(pod, now) {
				c.expiring++
				continue
			}
			c.ready = append(c.ready, pod)
		case factory.Warming:
			if starting(pod) {
				c.warming = append(c.warming, pod)
			}
		default: // claimed, ended or ending
		}
	}
	shuffle(c.ready, random)
	shuffle(c.warming, random)
	slices.SortStableFunc(c.warming, func(a, b *corev1.Pod) int { return progress(b) - progress(a) })
	return c
}

func shuffle(pods []*corev1.Pod, random *rand.Rand) {
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
}

// claimable compares the state, never the absence of an owner: a pod without an owner may be another job's.
func claimable(pod *corev1.Pod) bool {
	if pod.Labels[factory.LabelState] != factory.StateIdle || pod.Labels[factory.LabelJob] != "" {
		return false
	}
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// expiryMargin bounds how close to its end an idle pod is left alone: a claim and its handshake take well under a second,
// the rest is for clocks that differ. A short idle time has a margin of a tenth of it, else its pods could never be used.
const expiryMargin = 10 * time.Second

func expiresWithin(pod *corev1.Pod, now time.Time) bool {
	idleTime, err := time.ParseDuration(pod.Annotations[factory.AnnotationIdleTime])
	if err != nil || idleTime <= 0 {
		return false // no idle timer that we know of; the handshake decides
	}
	end := factory.ReadySince(pod).Add(idleTime)
	return !now.Before(end.Add(-min(expiryMargin, idleTime/10)))
}

// starting tells a pod on its way up from one that was up: where a node stops answering, its pods become not ready while
// their containers still read as ready. Nor is a pod starting one of whose containers has ended; nothing restarts it.
func starting(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodPending, "":
		return !slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
		})
	case corev1.PodRunning:
		waiting := false
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Terminated != nil {
				return false
			}
			waiting = waiting || !s.Ready
		}
		return waiting
	default:
		return false
	}
}

// progress is how far a warming pod has come; more is better.
func progress(pod *corev1.Pod) int {
	switch {
	case pod.Status.Phase == corev1.PodRunning:
		return 2
	case pod.Spec.NodeName != "":
		return 1
	default:
		return 0
	}
}
