package capacity

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/factory"
)

// stopwatch measures how long a job's pod that has to preempt waits for its node. The API server's own times are whole
// seconds, so it goes by when the watch shows them: a pod that was there before isn't measured.
type stopwatch struct {
	clock   clock.PassiveClock
	observe func(namespace, label string, took time.Duration) // the label that names the job's runner

	mu      sync.Mutex
	waiting map[types.UID]*waiting
}

// waiting is a job's pod that has no node yet.
type waiting struct {
	since     time.Time
	nominated bool // the scheduler has chosen a node on which others have to go first
}

func newStopwatch(c clock.PassiveClock, observe func(namespace, label string, took time.Duration)) *stopwatch {
	return &stopwatch{clock: c, observe: observe, waiting: map[types.UID]*waiting{}}
}

// handler follows the pods of jobs.
func (s *stopwatch) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if pod, ok := obj.(*corev1.Pod); ok && !initial {
				s.saw(pod)
			}
		},
		UpdateFunc: func(_, obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				s.saw(pod)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				s.forget(pod.UID)
			}
		},
	}
}

func (s *stopwatch) saw(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[pod.UID]
	switch {
	case w == nil && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName == "":
		s.waiting[pod.UID] = &waiting{since: s.clock.Now()}
	case w == nil:
	case pod.Spec.NodeName == "":
		w.nominated = w.nominated || pod.Status.NominatedNodeName != ""
	default:
		if w.nominated {
			s.observe(pod.Namespace, pod.Labels[factory.LabelGitLabManagerID], s.clock.Since(w.since))
		}
		delete(s.waiting, pod.UID)
	}
}

func (s *stopwatch) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, uid)
}
