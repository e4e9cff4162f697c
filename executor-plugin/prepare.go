package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// maxPods is how many pods of a pool are tried for one job before it gets one of its own.
const maxPods = 8

// prepare is the prepare stage: afterwards the job has a pod that knows it. It may run again, after it was cut short at
// any point, and then goes on with the pod that the job has already.
func prepare(ctx context.Context, t target, env job.Env) error {
	j, err := job.Read(env)
	if err != nil {
		return err
	}
	for _, warning := range append(j.Warnings, factory.Warnings(t.runner, j.Shape)...) {
		t.say("warning: " + warning)
	}
	if err := factory.Allowed(t.runner, j.Shape); err != nil {
		return err
	}
	shape, err := factory.ShapeOf(t.runner, j.Shape)
	if err != nil {
		return fmt.Errorf("work out the pod of the job: %w", err)
	}
	key, err := proof.NewKey()
	if err != nil {
		return fmt.Errorf("make a key for the job's streams: %w", err)
	}
	w := want{target: t, job: j, shape: shape, key: key, begin: time.Now()}
	w.deadline = w.begin.Add(pollTimeout(t.runner.Kubernetes.PollTimeout))
	if err := w.checkSecrets(); err != nil {
		return err
	}
	got, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	leave(env, j.Meta.ID, got.pod, doors{key: key, streams: got.streams})
	return nil
}

// maxPoll bounds poll_timeout: more seconds than a duration can hold would come out negative.
const maxPoll = 365 * 24 * 60 * 60

func pollTimeout(seconds int) time.Duration {
	return time.Duration(min(seconds, maxPoll)) * time.Second
}

// want is a job that wants a pod.
type want struct {
	target
	job      job.Job
	shape    factory.Shape
	key      ed25519.PrivateKey // by which its containers know the job's driver
	begin    time.Time
	deadline time.Time // for a pod to be ready
}

// held is a pod that knows its job, and where it can be entered without an exec.
type held struct {
	pod     *corev1.Pod
	streams map[wire.Role]wire.Stream
}

// acquire returns the job's pod.
func (w want) acquire(ctx context.Context) (held, error) {
	var tried []types.UID
	var lastMiss string
	for range maxPods {
		begin := time.Now()
		got, err := claim.Claim(ctx, w.client, claim.Request{Runner: w.runner, Shape: w.shape, Job: w.job.Meta, Skip: tried})
		if none, ok := errors.AsType[*claim.NoneIdleError](err); ok {
			return w.cold(ctx, w.whyNone(ctx, none, lastMiss))
		}
		if err != nil {
			return held{}, err
		}
		tookAPI := time.Since(begin)
		its, miss, err := w.warm(ctx, got, tookAPI, tried)
		if err != nil || miss == "" {
			return its, err
		}
		lastMiss = miss
		w.say(miss + "; trying another one")
		tried = append(tried, got.Pod.UID)
	}
	return w.cold(ctx, fmt.Sprintf("%d pods of the pool were no good, the last one: %s", maxPods, lastMiss))
}

// warm makes sure of a pod that was claimed. miss says why it is no good, "" where it is.
func (w want) warm(ctx context.Context, got claim.Claimed, tookAPI time.Duration, tried []types.UID) (its held, miss string, err error) {
	pod := got.Pod
	if got.Warming {
		ready, other, err := w.arrivalOrOther(ctx, got, slices.Clone(tried))
		if other != nil {
			w.say(fmt.Sprintf("pod %s was ready first; taking that instead", nameOf(other.Pod)))
			if err := w.drop(ctx, pod); err != nil {
				return held{}, "", err
			}
			return w.warm(ctx, *other, tookAPI, tried)
		}
		if gone, ok := errors.AsType[*podGoneError](err); ok {
			return held{}, gone.Error(), w.drop(ctx, pod)
		}
		if err != nil {
			return held{}, "", errors.Join(err, w.drop(ctx, pod))
		}
		pod = ready
	}
	begin := time.Now()
	result, err := w.handshake(ctx, pod)
	if err != nil {
		return held{}, "", err
	}
	switch result.outcome {
	case shaken:
		w.report(got, pod, tookAPI, time.Since(begin))
		return held{pod, result.streams}, "", nil
	case noShell:
		return held{}, "", w.noShell()
	case belongsToOther:
		return held{}, fmt.Sprintf("pod %s says that it belongs to another job", nameOf(pod)), nil
	case expired:
		miss = fmt.Sprintf("pod %s had just expired", nameOf(pod))
	case unusable:
		miss = fmt.Sprintf("pod %s can't be used: %s", nameOf(pod), result.why)
	}
	return held{}, miss, w.drop(ctx, pod)
}

// arrival waits for a claimed pod that is still starting.
func (w want) arrival(ctx context.Context, got claim.Claimed, seen func(diagnosis.Start)) (*corev1.Pod, error) {
	w.say(fmt.Sprintf("taking pod %s, which is still starting", nameOf(got.Pod)))
	if got.Again {
		// An earlier try may have been killed between the pod and what belongs to it.
		if err := w.createDependents(ctx, got.Pod); err != nil {
			return nil, err
		}
	}
	return w.waitReady(ctx, got.Pod, seen)
}

// report is the one line in the job's log that says what the job got.
func (w want) report(got claim.Claimed, pod *corev1.Pod, tookAPI, tookHandshake time.Duration) {
	line := fmt.Sprintf("claimed warm pod %s on node %s", nameOf(pod), pod.Spec.NodeName)
	switch {
	case got.Again:
		line = fmt.Sprintf("pod %s on node %s is the job's already, from an earlier try", nameOf(pod), pod.Spec.NodeName)
	case got.Warming:
		line += fmt.Sprintf(", ready after %s of waiting", round(time.Since(w.begin)))
	default:
		line += fmt.Sprintf(", idle for %s", round(got.IdleFor))
	}
	w.say(fmt.Sprintf("%s; took %s (API %s, handshake %s)", line, round(time.Since(w.begin)), round(tookAPI), round(tookHandshake)))
}

// dropGrace is what the containers of a pod get that has run nothing, in seconds. None at all would take the pod out of
// the API while it may still run.
const dropGrace = 1

// dropTimeout bounds the deletion of a pod that didn't do, also where the stage was stopped meanwhile.
const dropTimeout = 20 * time.Second

// drop deletes a pod that the job holds and can't use. A pod that can't be deleted now is deleted by cleanup.
func (w want) drop(ctx context.Context, pod *corev1.Pod) error {
	if errors.Is(context.Cause(ctx), errStopped) {
		return nil // cleanup comes next, and GitLab Runner waits for us
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	return claim.Delete(ctx, w.client, pod, new(int64(dropGrace)))
}

// whyNone says why there is no warm pod for the job; nobody should have to guess why a job waited.
func (w want) whyNone(ctx context.Context, none *claim.NoneIdleError, miss string) string {
	images := w.runner.IdleImages()
	if !slices.ContainsFunc(images, func(image string) bool { return config.SameImage(image, w.shape.Image) }) {
		if len(images) == 0 {
			return "the runner has no idle_images"
		}
		return fmt.Sprintf("image %s is not among the runner's idle_images", w.shape.Image)
	}
	pooled, err := factory.ShapeOf(w.runner, factory.Job{Image: w.shape.Image})
	if err == nil && pooled.Hash() != w.shape.Hash() {
		return fmt.Sprintf("the pool's pods of image %s differ from what the job asks for (%s)", w.shape.Image, factory.Differs(pooled, w.shape))
	}
	pool := factory.PoolName(w.runner, w.shape)
	if schedule, err := w.runner.ScheduleFor(w.shape.Image); err == nil {
		now := schedule.At(time.Now())
		if now.IdleCount == 0 && now.ScaleFactor == 0 {
			return fmt.Sprintf("pool %s wants no idle pods now (policy %s)", pool, now.Policy)
		}
	}
	switch {
	case miss != "":
		return fmt.Sprintf("pool %s has no other pod; %s", pool, miss)
	case none.Conflicts > 0:
		return fmt.Sprintf("other jobs took the last pods of pool %s", pool)
	case none.Expiring > 0:
		return fmt.Sprintf("the pods of pool %s are about to expire", pool)
	}
	return w.emptyPool(ctx, pool)
}

// emptyPool looks at what a pool has instead of idle pods.
func (w want) emptyPool(ctx context.Context, pool string) string {
	count, err := claim.CountPool(ctx, w.client, pool)
	if err != nil {
		return fmt.Sprintf("pool %s has no idle pod", pool)
	}
	return noneIdle(pool, count)
}

func noneIdle(pool string, c claim.Count) string {
	var parts []string
	for _, part := range []struct {
		n    int
		word string
	}{{c.Claimed, "claimed"}, {c.Warming, "starting"}, {c.Ending, "ending"}, {c.Ended, "ended or stuck"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.word))
		}
	}
	switch {
	case len(parts) == 0:
		return fmt.Sprintf("pool %s has no pods; `idlecount status` says why", pool)
	case c.Claimed > 0 && len(parts) == 1:
		return fmt.Sprintf("all %d pods of pool %s are claimed by other jobs", c.Claimed, pool)
	default:
		return fmt.Sprintf("pool %s has no pod that can be claimed (%s); `idlecount status` says more", pool, strings.Join(parts, ", "))
	}
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// round makes a duration readable.
func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Second)
	}
}
