package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
)

// podGoneError is a pod that ended, or was deleted, before it was ready: another pod may do better.
type podGoneError struct {
	reason  string
	crashed bool // by itself, so another one made like it won't
}

func (e *podGoneError) Error() string { return e.reason }

// waitReady waits until a pod is ready, and says what happens to it as it happens, each thing once. It gives up at once
// where waiting can't help, else at the deadline. A *jobError is an image or the like that the job asks for in vain. seen
// gets how far the pod has come, each time.
func (w want) waitReady(ctx context.Context, pod *corev1.Pod, seen func(diagnosis.Start)) (*corev1.Pod, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	last, told := pod, map[string]bool{}
	var failed error
	look := func(now *corev1.Pod, gone bool) (more bool) {
		if gone {
			failed = &podGoneError{reason: fmt.Sprintf("pod %s was deleted before it was ready", nameOf(pod))}
			return false
		}
		last = now
		start := diagnosis.StartOf(now)
		seen(start)
		if start.Ready {
			return false
		}
		w.tell(start, told)
		if finding, ok := start.Final(); ok {
			failed = w.finalError(now, finding)
			return false
		}
		return true
	}
	if !look(pod, false) {
		return last, failed
	}
	err := w.client.WatchPod(ctx, pod, look)
	switch {
	case failed != nil:
		return nil, failed
	case errors.Is(context.Cause(ctx), errNotReady):
		return nil, w.lateError(last)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("wait for pod %s: %w", nameOf(pod), err)
	}
	return last, nil
}

var errNotReady = errors.New("not ready in time")

// tell prints what is new about a pod that starts.
func (w want) tell(start diagnosis.Start, told map[string]bool) {
	for _, f := range start.Findings {
		if thing := f.Thing(); !told[thing] && !f.Final {
			told[thing] = true
			w.say(f.Message)
		}
	}
}

func (w want) finalError(pod *corev1.Pod, f diagnosis.Finding) error {
	if f.Gone {
		return &podGoneError{fmt.Sprintf("pod %s: %s", nameOf(pod), f.Message), f.Crashed}
	}
	err := fmt.Errorf("pod %s can't start: %s", nameOf(pod), f.Message)
	if f.OfJob {
		return &jobError{err}
	}
	return err
}

func (w want) lateError(pod *corev1.Pod) error {
	waits := diagnosis.StartOf(pod).Stuck()
	if waits == "" {
		waits = "its containers are being created; `kubectl describe pod` may say more while it lasts"
	}
	return fmt.Errorf("pod %s was not ready within %s (poll_timeout): %s", nameOf(pod), round(time.Since(w.begin)), waits)
}
