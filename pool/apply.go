package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

const (
	// burst bounds the creates of one pass: between bursts the worker sees to other pools, and hears of trouble.
	burst = 128
	// parallel bounds the requests under way at a time.
	parallel = 32
	// requestTimeout bounds each of them.
	requestTimeout = 10 * time.Second
)

// writer makes the writes that a plan asks for, and counts them.
type writer struct {
	client  kubernetes.Interface
	expect  *expectations
	holds   func() bool // whether nobody else can have taken the lease
	metrics *metrics
	log     *slog.Logger
	events  record.EventRecorder
}

// deletePods carries out a plan's deletes. Each is bound to the version of the pod that was decided on, so that it misses a
// pod that was claimed meanwhile; the watch then shows the new version, and another pass decides again. The error has all
// that failed otherwise.
func (w *writer) deletePods(ctx context.Context, p *pass, s snapshot, deletions []plan.Deletion) error {
	var mu sync.Mutex
	var errs *multierror.Error
	reasons := map[plan.Reason]int{}
	group := errgroup.Group{}
	group.SetLimit(parallel)
	for _, d := range deletions {
		uid, version, known := s.version(d.UID)
		if !known {
			continue // its create isn't answered yet; the watch will show it
		}
		group.Go(func() error {
			before := p.cache.pod(p.key.namespace, d.Name)
			deleted, err := w.deletePod(ctx, p.key, d.Name, uid, version)
			if deleted && d.Reason == plan.DeleteDeadline && before != nil {
				w.announceDeadline(before)
			}
			mu.Lock()
			defer mu.Unlock()
			if deleted {
				reasons[d.Reason]++
			}
			if err != nil {
				errs = multierror.Append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for reason, n := range reasons {
		w.metrics.deleted.WithLabelValues(p.series().with(string(reason))...).Add(float64(n))
		w.log.Info("pods deleted", "pool", p.key.name, "namespace", p.key.namespace, "image", p.image, "reason", reason, "count", n)
	}
	return errs.ErrorOrNil()
}

// announceDeadline says on a pod why it was ended though it had a job; the event outlives the pod.
func (w *writer) announceDeadline(pod *corev1.Pod) {
	deadline := deadlineOf(pod).UTC().Format(time.RFC3339)
	job := pod.Labels[factory.LabelJob]
	w.events.Eventf(pod, corev1.EventTypeWarning, eventDeadline,
		"job %s should have ended by %s; neither its driver nor the kubelet of node %s has ended its pod, so idlecount has", job, deadline, pod.Spec.NodeName)
	w.log.Warn("a claimed pod was ended: its job's deadline has long passed", "pod", pod.Name, "namespace", pod.Namespace, "job", job,
		"deadline", deadline, "node", pod.Spec.NodeName)
}

// deletePod deletes a pod of a version, and says whether it did.
func (w *writer) deletePod(ctx context.Context, k key, name string, uid types.UID, version string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w.expect.delete(uid)
	err := w.client.CoreV1().Pods(k.namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	w.metrics.wrote("delete pod", result(err))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Gone already, or changed; the watch tells which.
		w.expect.dropDelete(uid)
		return false, nil
	default:
		w.expect.dropDelete(uid)
		return false, err
	}
}

// createPods creates n pods, with few requests at a time at first and more with each that succeeds, so that a refusal is
// met with few requests rather than many. After the first refusal no more are begun. It returns how many pods were created,
// and that refusal; the window is the namespace's, for quotas and webhooks are.
func (w *writer) createPods(ctx context.Context, p *pass, n int, window *window) (int, error) {
	runner, idleTime := factory.RunnerLabel(p.pool.runner), p.policy.IdleTime
	owner := factory.Owner{Name: p.anchor.Name, UID: p.anchor.UID}
	created, err := window.run(n, func() error {
		if !w.holds() {
			// A create is the one write that nothing binds to what was seen: a leader that stood still for longer than its lease
			// lasts, and goes on, would make pods that the next one has made already.
			return errLapsed
		}
		name := factory.PodName(p.key.name, rand.String(suffixLength))
		err := w.createPod(ctx, p.key, runner, factory.IdlePod(p.pool.runner, p.pool.shape, name, idleTime, owner))
		w.metrics.created.WithLabelValues(p.series().with(result(err))...).Inc()
		return err
	})
	if created > 0 {
		w.log.Info("pods created", "pool", p.key.name, "namespace", p.key.namespace, "image", p.image, "count", created)
	}
	return created, err
}

var errLapsed = errors.New("the lease has run out, and another manager may lead by now: no pod is made")

// suffixLength is that of a pod's random part: with 27^8 of them two pods of a pool don't meet.
const suffixLength = 8

func (w *writer) createPod(ctx context.Context, k key, runner string, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := types.NamespacedName{Namespace: k.namespace, Name: pod.Name}
	w.expect.create(k, runner, pod.Name)
	made, err := w.client.CoreV1().Pods(k.namespace).Create(ctx, pod, metav1.CreateOptions{})
	w.metrics.wrote("create pod", result(err))
	switch {
	case err == nil:
		w.expect.created(name, made.UID, made.ResourceVersion)
	case doubtful(err):
		w.expect.doubted(name)
	default:
		w.expect.dropCreate(name)
	}
	return err
}

// result is a label for the outcome of a request: ok, or the API server's reason.
func result(err error) string {
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
		return "ok"
	case reason != metav1.StatusReasonUnknown:
		return string(reason)
	case errors.Is(err, context.Canceled):
		return "Canceled"
	default:
		return "Unreachable"
	}
}
