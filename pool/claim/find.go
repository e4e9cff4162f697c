package claim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// JobLabel is the value of factory.LabelJob for a job's id.
func JobLabel(id string) string {
	return factory.ClaimMetadata(config.Runner{}, factory.JobMeta{ID: id}, factory.Warm).Labels[factory.LabelJob]
}

// FindByJob returns the pods that are bound to a job, in whatever phase: one, none, or more where an earlier try was
// killed at a bad moment. The answer comes from the store, not from a cache.
func FindByJob(ctx context.Context, pods Pods, runner config.Runner, job string) ([]corev1.Pod, error) {
	selector := labels.Set{
		factory.LabelRunner: factory.RunnerLabel(runner),
		factory.LabelJob:    JobLabel(job),
	}.String()
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("look for the pod of job %s: %w", job, err)
	}
	return list.Items, nil
}

// Delete ends one pod and no other: a pod of the same name with another UID stays. grace is in seconds, nil = what the
// pod's spec says. A pod that is gone already is no error.
func Delete(ctx context.Context, pods Pods, pod *corev1.Pod, grace *int64) error {
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	// A conflict is another UID: the pod that was meant is gone.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// countLimit bounds how many pods are counted: beyond it the number doesn't matter.
const countLimit = 500

// Count is what a pool has besides idle pods.
type Count struct {
	Claimed int // by jobs
	Warming int
	Ending  int // told to end, and not gone yet
	Ended   int // by themselves, or stuck
}

// CountPool counts the pods of a pool that are not idle.
func CountPool(ctx context.Context, pods Pods, pool string) (Count, error) {
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{factory.LabelPool: pool}.String(), Limit: countLimit})
	if err != nil {
		return Count{}, fmt.Errorf("count the pods of pool %s: %w", pool, err)
	}
	var c Count
	for i := range list.Items {
		switch factory.PhaseOf(&list.Items[i]) {
		case factory.Claimed:
			c.Claimed++
		case factory.Warming:
			c.Warming++
		case factory.Ending:
			c.Ending++
		case factory.Expired, factory.Failed, factory.Finished:
			c.Ended++
		case factory.Idle:
		}
	}
	return c, nil
}
