package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// Pods is what a claim needs of the pods of one namespace; client-go's typed PodInterface has it. Reads may retry, Patch
// must not: after a failed one Claim looks at the pod, since the write may have been made.
type Pods interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Request is a job that wants an idle pod.
type Request struct {
	Runner config.Runner
	Shape  factory.Shape
	Job    factory.JobMeta // ClaimedAt is filled in by Claim
	Skip   []types.UID     // pods that this job has tried already
	Ready  bool            // take none that still starts
}

// Claimed is a pod that belongs to the job now.
type Claimed struct {
	Pod       *corev1.Pod   // as the API server has it after the claim
	Again     bool          // the job had it already: an earlier try was cut short
	Warming   bool          // it is not ready yet
	IdleFor   time.Duration // how long it had been ready before the job took it
	Conflicts int           // how many pods were lost to others before
}

// NoneIdleError says that no pod of the shape was to be had.
type NoneIdleError struct {
	Conflicts int // pods that were there and went to others
	Expiring  int // pods left alone since their idle timer is about to end them
}

func (e *NoneIdleError) Error() string {
	switch {
	case e.Conflicts > 0:
		return fmt.Sprintf("no idle pod is left, others were first %d times", e.Conflicts)
	case e.Expiring > 0:
		return fmt.Sprintf("no idle pod but %d about to expire", e.Expiring)
	default:
		return "no idle pod"
	}
}

// ErrNoneIdle is what errors.Is finds in a NoneIdleError.
var ErrNoneIdle = errors.New("no idle pod")

// Is makes errors.Is(err, ErrNoneIdle) true.
func (e *NoneIdleError) Is(target error) bool { return target == ErrNoneIdle }

// How a claim spreads its tries. A bounded list returns the first names in order, so claimers of one moment meet on the
// same pods: each list is therefore tried in random order, only a few times before a fresh and longer one replaces it,
// since after that most of an old list is taken.
const (
	firstLimit   = 16
	limitGrowth  = 4
	triesPerList = 4
	maxLists     = 6
)

// Claim binds one idle pod of the shape to the job: ready ones first, then warming ones. It writes once where nobody
// else wants the same pod. A job that has a pod of the shape keeps it, whoever took it and when; others that are bound to
// it are deleted, so that a job never holds two. Errors: a NoneIdleError, or what the API server said.
func Claim(ctx context.Context, pods Pods, req Request) (Claimed, error) {
	own := findOwn(ctx, pods, req)
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // spreads load, guards nothing
	none := &NoneIdleError{}
	for _, stage := range stages(req.Ready) {
		limit := int64(firstLimit)
		for range maxLists {
			chosen, all, err := stage.list(ctx, pods, req, limit, none, random)
			if err != nil {
				return Claimed{}, err
			}
			// The two questions are asked at the same time, but nothing is written before both are answered.
			if claimed, err := own(); claimed != nil || err != nil {
				return valueOf(claimed), err
			}
			for _, pod := range chosen[:min(len(chosen), triesPerList)] {
				claimed, err := take(ctx, pods, pod, req)
				if err != nil {
					return Claimed{}, fmt.Errorf("claim pod %s/%s: %w", pod.Namespace, pod.Name, err)
				}
				if claimed != nil {
					claimed.Conflicts = none.Conflicts
					return *claimed, nil
				}
				none.Conflicts++
			}
			// A cut list without a candidate says nothing about the pods that it left out.
			if len(chosen) == 0 && all {
				break
			}
			limit *= limitGrowth
		}
	}
	return Claimed{}, none
}

func valueOf(c *Claimed) Claimed {
	if c == nil {
		return Claimed{}
	}
	return *c
}

// A stage of the search is which pods to list and which of them to try, best first.
type stage struct {
	fields string
	choose func(candidates) []*corev1.Pod
}

// stages lists running pods alone at first: that keeps ended ones, which still carry the label of an idle pod, and pods
// on their way up out of a bounded list.
func stages(ready bool) []stage {
	running := stage{"status.phase=Running", func(c candidates) []*corev1.Pod { return c.ready }}
	if ready {
		return []stage{running}
	}
	return []stage{
		running,
		{"status.phase!=Succeeded,status.phase!=Failed", func(c candidates) []*corev1.Pod { return slices.Concat(c.ready, c.warming) }},
	}
}

// list asks for up to limit pods and returns those to try, best first, and whether there are no more of them.
func (s stage) list(ctx context.Context, pods Pods, req Request, limit int64, none *NoneIdleError, random *rand.Rand) ([]*corev1.Pod, bool, error) {
	selector := labels.Set{
		factory.LabelRunner: factory.RunnerLabel(req.Runner),
		factory.LabelShape:  req.Shape.Hash(),
		factory.LabelState:  factory.StateIdle,
	}.String()
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: s.fields, Limit: limit})
	if err != nil {
		return nil, false, fmt.Errorf("list the idle pods of runner %s: %w", factory.RunnerLabel(req.Runner), err)
	}
	found := rank(list.Items, req.Skip, time.Now(), random)
	none.Expiring = max(none.Expiring, found.expiring)
	return s.choose(found), list.Continue == "", nil
}

// take makes the one write of a claim. It returns nil, nil where the pod went to somebody else or changed in between.
func take(ctx context.Context, pods Pods, pod *corev1.Pod, req Request) (*Claimed, error) {
	job := req.Job
	job.ClaimedAt = time.Now()
	patch, err := bind(pod, req.Runner, job)
	if err != nil {
		return nil, err
	}
	claimed := &Claimed{}
	if since := factory.ReadySince(pod); since != nil {
		claimed.IdleFor = max(0, job.ClaimedAt.Sub(since.Time))
	} else {
		claimed.Warming = true
	}
	claimed.Pod, err = pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && Transient(err) && ctx.Err() == nil {
		// The write may have been made before its answer was lost.
		claimed.Pod, err = ours(ctx, pods, pod, job)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no pod and no error is the answer
	case err != nil:
		return nil, err
	case claimed.Pod == nil:
		return nil, nil //nolint:nilnil // as above
	}
	return claimed, nil
}

const fieldManager = "idlecount-executor"

// ours looks whether a write whose answer was lost has bound the pod to the job; nil where it has not.
func ours(ctx context.Context, pods Pods, pod *corev1.Pod, job factory.JobMeta) (*corev1.Pod, error) {
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if now.UID != pod.UID || now.Labels[factory.LabelJob] != JobLabel(job.ID) {
		return nil, nil //nolint:nilnil // somebody else's
	}
	return now, nil
}
