package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/quota"
)

const (
	// maxGivenBack bounds how many idle pods one job may cost.
	maxGivenBack = 8
	// roomWait is how long a quota may go on counting pods that were deleted: they have to end, and a controller has to count
	// anew. A manager leaves the room alone for about as long.
	roomWait = 10 * time.Second
	// roomPause is how often it is tried meanwhile.
	roomPause = 150 * time.Millisecond
)

// room is what a driver does about a quota that refuses its pod: it gives idle pods back, which nobody is waiting for.
type room struct {
	given int
	used  corev1.ResourceList // when pods were given back last
	freed bool                // the quota has counted less since
	until time.Time           // so long it may count them still
}

// next says what to do after a refusal: wait a moment for pods that were given back (0 more), give back up to so many
// more, or neither, with -1. A quota that doesn't count less for pods that are gone doesn't count our idle pods at all.
func (r *room) next(q diagnosis.Quota, now time.Time) int {
	if r.given > 0 {
		for name, before := range r.used {
			used, short := q.Used[name]
			r.freed = r.freed || !short || used.Cmp(before) < 0
		}
		if now.Before(r.until) {
			return 0
		}
		if !r.freed {
			return -1
		}
	}
	if r.given >= maxGivenBack || len(q.Short) == 0 {
		return -1
	}
	return maxGivenBack - r.given
}

// makeRoom gives back idle pods that make room in the quota, whoever's pool they are of, and says so. It returns whether
// there is something to wait for.
func (w want) makeRoom(ctx context.Context, r *room, q diagnosis.Quota) (bool, error) {
	most := r.next(q, time.Now())
	if most <= 0 {
		return most == 0, nil
	}
	list, err := w.client.List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{factory.LabelState: factory.StateIdle}.String(),
		FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
	})
	if err != nil {
		return false, err
	}
	var gone []string
	for _, pod := range surrender(list.Items, q.Short, most) {
		// Not one that was claimed meanwhile.
		err := w.client.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(dropGrace)),
			Preconditions:      &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
		})
		switch {
		case err == nil:
			gone = append(gone, fmt.Sprintf("%s of pool %s", pod.Name, pod.Labels[factory.LabelPool]))
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return false, fmt.Errorf("give back idle pod %s: %w", nameOf(pod), err)
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	r.given, r.used, r.freed, r.until = r.given+len(gone), q.Used, false, time.Now().Add(roomWait)
	w.say(fmt.Sprintf("quota %s is used up; gave back %s", q.Name, strings.Join(gone, ", ")))
	return true, nil
}

// surrender picks the idle pods to delete so that a quota has room: few, and those first that are of least use. None where
// all that may be deleted would not do: then nothing is gained.
func surrender(pods []corev1.Pod, short corev1.ResourceList, most int) []*corev1.Pod {
	var idle []*corev1.Pod
	for i := range pods {
		if phase := factory.PhaseOf(&pods[i]); phase == factory.Idle || phase == factory.Warming {
			idle = append(idle, &pods[i])
		}
	}
	slices.SortStableFunc(idle, func(a, b *corev1.Pod) int {
		readyA, readyB := factory.ReadySince(a), factory.ReadySince(b)
		switch {
		case readyA == nil || readyB == nil:
			return ready(readyA) - ready(readyB) // one that still starts is the longest way from being of use
		default:
			return readyA.Compare(readyB.Time) // the oldest expires first
		}
	})
	var picked []*corev1.Pod
	for _, pod := range idle {
		if left := lacks(short, picked); len(left) > 0 && helps(pod, left) {
			picked = append(picked, pod)
		}
	}
	if len(lacks(short, picked)) > 0 {
		return nil
	}
	// A later one may have made an earlier one needless.
	for i := 0; i < len(picked); {
		without := slices.Delete(slices.Clone(picked), i, i+1)
		if len(lacks(short, without)) == 0 {
			picked = without
		} else {
			i++
		}
	}
	if len(picked) > most {
		return nil
	}
	return picked
}

func ready(since *metav1.Time) int {
	if since == nil {
		return 0
	}
	return 1
}

// lacks is what is still short when some pods are gone.
func lacks(short corev1.ResourceList, gone []*corev1.Pod) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name, quantity := range short {
		quantity = quantity.DeepCopy()
		for _, pod := range gone {
			quantity.Sub(quota.Usage(pod, name))
		}
		if quantity.Sign() > 0 {
			left[name] = quantity
		}
	}
	return left
}

func helps(pod *corev1.Pod, left corev1.ResourceList) bool {
	for name := range left {
		if q := quota.Usage(pod, name); q.Sign() > 0 {
			return true
		}
	}
	return false
}
