package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// cold makes a pod for the job. why is the reason for which there was no warm one.
func (w want) cold(ctx context.Context, why string) (held, error) {
	w.say("no warm pod: " + why + "; making one")
	for n := 0; ; n++ {
		pod, err := w.create(ctx)
		if err != nil {
			return held{}, err
		}
		streams, err := w.start(ctx, pod)
		if err == nil {
			return held{pod, streams}, nil
		}
		gone, ok := errors.AsType[*podGoneError](err)
		if err := errors.Join(err, w.drop(ctx, pod)); !ok || gone.crashed || n+1 == maxCold {
			return held{}, err
		}
		w.say(gone.Error() + "; making another one")
		if err := w.pauseBefore(ctx, n, gone); err != nil {
			return held{}, err
		}
	}
}

// maxCold is how many pods are made for one job. A node can refuse a pod that the scheduler gave it: it still counts what
// was preempted for it (OutOfcpu), or a device has gone. That passes in a second or two, or the next pod gets another node.
const maxCold = 5

// pauseBefore waits before the pod after the nth is made.
func (w want) pauseBefore(ctx context.Context, n int, why error) error {
	ctx, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	return pause(ctx, backoff(n), why)
}

// start sees a new pod through to the handshake, and returns where it can be entered without an exec.
func (w want) start(ctx context.Context, pod *corev1.Pod) (map[wire.Role]wire.Stream, error) {
	if err := w.createDependents(ctx, pod); err != nil {
		return nil, err
	}
	ready, err := w.waitReady(ctx, pod, func(diagnosis.Start) {})
	if err != nil {
		return nil, err
	}
	result, err := w.handshake(ctx, ready)
	switch {
	case err != nil:
		return nil, err
	case result.outcome == noShell:
		return nil, w.noShell()
	case result.outcome != shaken:
		return nil, fmt.Errorf("the new pod %s can't be used: %s", nameOf(pod), result.why)
	}
	w.say(fmt.Sprintf("made cold pod %s on node %s; took %s", nameOf(ready), ready.Spec.NodeName, round(time.Since(w.begin))))
	return result.streams, nil
}

// nameLength is the length of the random part of a pod's name.
const nameLength = 5

// create makes the pod. Where a quota is used up, idle pods are given back, or else it is waited for; whatever else the API
// server refuses is final.
func (w want) create(ctx context.Context) (*corev1.Pod, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	var r refusals
	name := factory.PoolName(w.runner, w.shape) + "-" + rand.String(nameLength)
	for {
		meta := w.job.Meta
		meta.ClaimedAt = time.Now()
		pod, err := w.client.CreatePod(ctx, factory.JobPod(w.runner, w.shape, name, meta))
		if apierrors.IsAlreadyExists(err) {
			// The answer to an earlier try was lost, or somebody else's pod has the name.
			if pod, err = w.client.Get(ctx, name, metav1.GetOptions{}); err == nil && pod.Labels[factory.LabelJob] != claim.JobLabel(meta.ID) {
				name = factory.PoolName(w.runner, w.shape) + "-" + rand.String(nameLength)
				continue
			}
		}
		if err == nil {
			return pod, nil
		}
		next, err := w.afterRefusal(ctx, &r, err)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, next, r.last); err != nil {
			return nil, fmt.Errorf("the pod could not be created within %s (poll_timeout): %w", round(time.Since(w.begin)), err)
		}
	}
}

// refusals are what has become of the tries to create a pod so far.
type refusals struct {
	n    int // but for those while room was being made
	told bool
	made room
	last error
}

// afterRefusal returns how long to wait before another try, or why there is to be none.
func (w want) afterRefusal(ctx context.Context, r *refusals, err error) (time.Duration, error) {
	r.last = err
	tight, quota := diagnosis.QuotaRefusal(err)
	if tight.Final || !quota && !claim.Transient(err) {
		err = fmt.Errorf("create a pod for the job in namespace %s: %w", w.shape.Namespace, err)
		if diagnosis.AskedInVain(err, w.job.Shape, len(w.shape.Services)) {
			return 0, &jobError{err}
		}
		return 0, err
	}
	if quota {
		making, err := w.makeRoom(ctx, &r.made, tight)
		if err != nil {
			return 0, fmt.Errorf("make room for the pod of the job in quota %s: %w", tight.Name, err)
		}
		if making {
			return roomPause, nil
		}
	}
	if !r.told && (quota || time.Since(w.begin) > noticeAfter) {
		r.told = true
		w.say(fmt.Sprintf("waiting to create the pod: %v", err) + noRoom(quota))
	}
	r.n++
	return backoff(r.n - 1), nil
}

func noRoom(quota bool) string {
	if !quota {
		return ""
	}
	return "; no idle or pause pods can be given back that would make room"
}

// noticeAfter is how long an API server may not answer before the job's log says so.
const noticeAfter = 2 * time.Second

func backoff(n int) time.Duration { return min(250*time.Millisecond<<min(n, 8), 5*time.Second) }

// pause waits before another try; where there is no time left for one, it returns why the last one failed.
func pause(ctx context.Context, d time.Duration, last error) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, errNotReady) {
			return cause
		}
		return last
	}
}

// checkSecrets says whether the variables of the job's services are more than Kubernetes takes.
func (w want) checkSecrets() error {
	for _, secret := range factory.Dependents(factory.JobPod(w.runner, w.shape, "", w.job.Meta), w.shape, w.job.Shape) {
		size := 0
		for _, value := range secret.Data {
			size += len(value)
		}
		if size > corev1.MaxSecretSize {
			return &jobError{fmt.Errorf("the job's public variables have %d KiB, and its services get them through a Secret, which holds %d KiB at most; make them fewer or smaller, or hand them on in a file or an artifact",
				size>>10, corev1.MaxSecretSize>>10)}
		}
	}
	return nil
}

// createDependents makes what belongs to a pod, after it: the kubelet waits for it, and nothing can be left behind without
// its owner.
func (w want) createDependents(ctx context.Context, pod *corev1.Pod) error {
	for _, secret := range factory.Dependents(pod, w.shape, w.job.Shape) {
		if err := w.createSecret(ctx, secret); err != nil {
			return err
		}
	}
	return nil
}

func (w want) createSecret(ctx context.Context, secret *corev1.Secret) error {
	ctx, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	for n := 0; ; n++ {
		err := w.client.CreateSecret(ctx, secret)
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !claim.Transient(err) {
			return fmt.Errorf("create Secret %s/%s for the variables of a service: %w", secret.Namespace, secret.Name, err)
		}
		if err := pause(ctx, backoff(n), err); err != nil {
			return fmt.Errorf("create Secret %s/%s for the variables of a service: %w", secret.Namespace, secret.Name, err)
		}
	}
}
