package chaos

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/factory"
)

// EndIdlePods plays the idle timers of entrypoints, which pods on KWOK nodes don't have: a pod that nobody has claimed within
// its idle time ends itself. It returns when ctx ends, or with what the API server has against it.
func (c *Checker) EndIdlePods(ctx context.Context, client kubernetes.Interface) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, pod := range c.Live() {
			if !timerIsUp(pod, time.Now()) {
				continue
			}
			if err := endPod(ctx, client, pod); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func timerIsUp(pod *corev1.Pod, now time.Time) bool {
	idleTime, err := time.ParseDuration(pod.Annotations[factory.AnnotationIdleTime])
	return err == nil && idleTime > 0 && factory.PhaseOf(pod) == factory.Idle && !now.Before(factory.ReadySince(pod).Add(idleTime))
}

// endPod ends a pod, unless it was claimed or deleted meanwhile: in a real one the claim file excludes that.
func endPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pod.ResourceVersion, "uid": pod.UID},
		"status":   map[string]any{"phase": corev1.PodSucceeded},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
