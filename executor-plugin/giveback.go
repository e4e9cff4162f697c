package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/quota"
)

const (
	// maxGivenBack bounds how many pods one job may cost.
	maxGivenBack = 8
	// roomWait is how long a quota may go on counting pods that were deleted: they have to end, and a controller has to count
	// anew. A manager leaves the room alone for about as long.
	roomWait = 10 * time.Second
	// giveBackTries is how often pods are looked for where other drivers gave the same ones back first.
	giveBackTries = 4
	// roomPause is how often it is tried meanwhile.
	roomPause = 150 * time.Millisecond
)

// room is what a driver does about a quota that refuses its pod: it gives pause pods and idle pods back, which nobody is
// waiting for.
type room struct {
	given int
	part  bool                // fewer were given than are needed, to see whether the quota counts them
	used  corev1.ResourceList // when pods were given back last
	freed bool                // the quota has counted less since
	until time.Time           // so long it may count them still
	vain  bool                // it has not: nothing more is given to it for this job
	told  bool                // and the next try of the job knows
}

// next says what to do after a refusal: wait a moment for pods that were given back (0 more), give back up to so many
// more, or neither, with -1. A quota that doesn't count less by then doesn't count our pods at all, or no manager is there
// that takes pause pods away.
func (r *room) next(q diagnosis.Quota, now time.Time) int {
	if r.vain {
		return -1
	}
	if r.given > 0 {
		for name, before := range r.used {
			used, short := q.Used[name]
			r.freed = r.freed || !short || used.Cmp(before) < 0
		}
		if now.Before(r.until) && (!r.freed || !r.part) {
			return 0
		}
		if !r.freed {
			r.vain = true
			return -1
		}
	}
	if r.given >= maxGivenBack || len(q.Short) == 0 {
		return -1
	}
	return maxGivenBack - r.given
}

// makeRoom gives back pause pods and idle pods that make room in the quota, whoever's they are, and says so. It returns
// whether there is something to wait for.
func (w want) makeRoom(ctx context.Context, r *room, q diagnosis.Quota) (bool, error) {
	most := r.next(q, time.Now())
	if r.vain && !r.told {
		r.told = true
		return false, w.remember(ctx, q.Name)
	}
	if most <= 0 {
		return most == 0, nil
	}
	var gone []string
	part := false
	for range giveBackTries {
		pods, err := w.spare(ctx)
		if err != nil {
			return false, err
		}
		if uncounted(pods, q.Used) {
			return false, nil
		}
		if inVain(pods, q.Name, w.job.Meta.ID) {
			r.vain, r.told = true, true
			return false, nil
		}
		picked := surrender(pods, q.Short, most)
		if part = r.given == 0 && len(picked) > 1; part {
			picked = picked[:1] // which says whether the others would do
		}
		if gone, err = w.giveBack(ctx, picked); err != nil {
			return false, err
		}
		if len(gone) > 0 || len(picked) == 0 {
			break // but where others were faster with all of them
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	r.given, r.part, r.used, r.freed, r.until = r.given+len(gone), part, q.Used, false, time.Now().Add(roomWait)
	w.say(fmt.Sprintf("quota %s is used up; gave back %s", q.Name, strings.Join(gone, ", ")))
	return true, nil
}

// spare lists the pods that may be given back, in an order that differs from that of other drivers.
func (w want) spare(ctx context.Context) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for _, selector := range []string{factory.LabelState + "=" + factory.StateIdle, factory.LabelCapacity} {
		list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"})
		if err != nil {
			return nil, err
		}
		pods = append(pods, list.Items...)
	}
	rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods, nil
}

// uncounted says whether a quota leaves out some of the pods, as one with scopes does: all of them are more than it counts. It
// isn't known which, and so none is given to it.
func uncounted(pods []corev1.Pod, used corev1.ResourceList) bool {
	for name, counted := range used {
		var sum resource.Quantity
		for i := range pods {
			if pods[i].DeletionTimestamp == nil {
				sum.Add(quota.Usage(&pods[i], name))
			}
		}
		if sum.Cmp(counted) > 0 {
			return true
		}
	}
	return false
}

// inVain says whether an earlier try of the job has given pods back to a quota in vain.
func inVain(pods []corev1.Pod, quota, jobID string) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Annotations[factory.AnnotationGivenInVain] == factory.GivenInVain(quota, jobID)
	})
}

// remember leaves a note for the next try of the job, on one of the pods that it would look at.
func (w want) remember(ctx context.Context, quota string) error {
	pods, err := w.spare(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		if useOf(&pods[i]) == inUse {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":         pods[i].UID,
			"annotations": map[string]string{factory.AnnotationGivenInVain: factory.GivenInVain(quota, w.job.Meta.ID)},
		}})
		if err != nil {
			return err
		}
		_, err = w.client.Patch(ctx, pods[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// giveBack gives pods back, each in the version that was looked at: not one that was claimed meanwhile, or that another
// driver has given back. It returns what was given.
func (w want) giveBack(ctx context.Context, pods []*corev1.Pod) (gone []string, err error) {
	for _, pod := range pods {
		what, err := w.giveBackOne(ctx, pod)
		switch {
		case err == nil:
			gone = append(gone, what)
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return gone, fmt.Errorf("give back pod %s: %w", nameOf(pod), err)
		}
	}
	return gone, nil
}

// giveBackOne deletes an idle pod. A pause pod is only marked: if it were deleted, its ReplicaSet would make another one in
// its place before the job's pod could be made. It is the manager that takes it away, by wanting one fewer.
func (w want) giveBackOne(ctx context.Context, pod *corev1.Pod) (what string, err error) {
	if capacity := pod.Labels[factory.LabelCapacity]; capacity != "" {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
			"annotations": map[string]string{factory.AnnotationGivenBack: time.Now().UTC().Format(time.RFC3339), corev1.PodDeletionCost: "-1"},
		}})
		if err != nil {
			return "", err
		}
		_, err = w.client.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return fmt.Sprintf("the room of pause pod %s (capacity %s)", pod.Name, capacity), err
	}
	return fmt.Sprintf("%s of pool %s", pod.Name, pod.Labels[factory.LabelPool]), w.client.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(dropGrace)),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
}

// use is how much would be lost with a pod, the least first. Of pause pods a ReplicaSet takes those first that have no node.
type use int

const (
	pauseWithoutNode use = iota
	pauseOnNode
	warming
	idle
	inUse // not to be given back
)

func useOf(pod *corev1.Pod) use {
	if pod.Labels[factory.LabelCapacity] != "" {
		switch {
		case pod.DeletionTimestamp != nil, pod.Annotations[factory.AnnotationGivenBack] != "":
			return inUse
		case pod.Spec.NodeName == "":
			return pauseWithoutNode
		default:
			return pauseOnNode
		}
	}
	switch factory.PhaseOf(pod) {
	case factory.Warming:
		return warming // the longest way from being of use
	case factory.Idle:
		return idle
	default:
		return inUse
	}
}

// surrender picks the pods to give back so that a quota has room: few, and those first that are of least use. None where all
// that may go would not do: then nothing is gained.
func surrender(pods []corev1.Pod, short corev1.ResourceList, most int) []*corev1.Pod {
	var spare []*corev1.Pod
	for i := range pods {
		if useOf(&pods[i]) != inUse {
			spare = append(spare, &pods[i])
		}
	}
	slices.SortStableFunc(spare, func(a, b *corev1.Pod) int {
		if by := cmp.Compare(useOf(a), useOf(b)); by != 0 || useOf(a) != idle {
			return by
		}
		return factory.ReadySince(a).Compare(factory.ReadySince(b).Time) // the oldest expires first
	})
	var picked []*corev1.Pod
	for _, pod := range spare {
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
