package claim

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/factory"
)

// findOwn begins to look for the pods that the job has already; the function that it returns waits for the answer.
func findOwn(ctx context.Context, pods Pods, req Request) func() (*Claimed, error) {
	type answer struct {
		pods []corev1.Pod
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		found, err := FindByJob(ctx, pods, req.Runner, req.Job.ID)
		answers <- answer{found, err}
	}()
	return sync.OnceValues(func() (*Claimed, error) {
		a := <-answers
		if a.err != nil {
			return nil, a.err
		}
		keep, drop := own(a.pods, req.Shape.Hash(), req.Skip)
		for _, pod := range drop {
			if err := Delete(ctx, pods, pod, nil); err != nil {
				return nil, err
			}
		}
		if keep == nil {
			return nil, nil //nolint:nilnil // no pod and no error is the answer
		}
		return &Claimed{Pod: keep, Again: true, Warming: factory.ReadySince(keep) == nil}, nil
	})
}

// own picks the pod that a job goes on with, of those that carry its id, and those that it must not hold beside it. A pod
// that the job has tried in vain is in neither: whoever tried it decides about it.
func own(pods []corev1.Pod, shape string, skip []types.UID) (keep *corev1.Pod, drop []*corev1.Pod) {
	var live []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		switch {
		case slices.Contains(skip, pod.UID), pod.DeletionTimestamp != nil:
		case factory.PhaseOf(pod) == factory.Claimed && pod.Labels[factory.LabelShape] == shape:
			live = append(live, pod)
		default:
			drop = append(drop, pod)
		}
	}
	if len(live) == 0 {
		return nil, drop
	}
	slices.SortFunc(live, func(a, b *corev1.Pod) int {
		if ready := readiness(b) - readiness(a); ready != 0 {
			return ready
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return live[0], append(drop, live[1:]...)
}

// readiness is how near a pod is to running a script; more is nearer.
func readiness(pod *corev1.Pod) int {
	if factory.ReadySince(pod) != nil {
		return 3
	}
	return progress(pod)
}
