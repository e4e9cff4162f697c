package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/pool/claim"
)

const (
	// loyalty is how long a job stays with a pod that is on its way, before it looks at what has become ready meanwhile.
	loyalty = 10 * time.Second
	// scoutPause is how often it looks.
	scoutPause = 2 * time.Second
)

// looksElsewhere says whether a job whose pod still starts takes another one that is ready: where its own waits for
// something that may never come, such as a node or an image, or has taken its time.
func looksElsewhere(waited time.Duration, start diagnosis.Start) bool {
	return !start.Ready && (waited >= loyalty || waited >= scoutPause && start.Stuck() != "")
}

// errOvertaken is the cause of a wait's end: the job has got another pod, which is ready.
var errOvertaken = errors.New("another pod was ready first")

// arrivalOrOther waits for a claimed pod that is still starting. other is set where the job has taken a ready one instead;
// then the first is the caller's to drop.
func (w want) arrivalOrOther(ctx context.Context, got claim.Claimed, tried []types.UID) (ready *corev1.Pod, other *claim.Claimed, err error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var last atomic.Pointer[diagnosis.Start]
	found := make(chan *claim.Claimed, 1)
	go func() {
		claimed := w.scout(waiting, &last, append(tried, got.Pod.UID))
		found <- claimed
		if claimed != nil {
			stop(errOvertaken)
		}
	}()
	ready, err = w.arrival(waiting, got, func(start diagnosis.Start) { last.Store(&start) })
	stop(nil)
	other = <-found
	if other == nil {
		return ready, nil, err
	}
	if err == nil { // both at the same moment
		return ready, nil, w.drop(ctx, other.Pod)
	}
	return nil, other, nil
}

// scout claims a pod that is ready while another one starts, as soon as that is worth it; nil where ctx ended first.
func (w want) scout(ctx context.Context, last *atomic.Pointer[diagnosis.Start], skip []types.UID) *claim.Claimed {
	begin := time.Now()
	ticks := time.NewTicker(scoutPause)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		start := last.Load()
		if start == nil || !looksElsewhere(time.Since(begin), *start) {
			continue
		}
		// An error is no reason to stop waiting: the pod may come.
		if claimed, err := w.claimReady(ctx, skip); err == nil {
			return &claimed
		}
	}
}

// claimReady isn't cut short when the wait ends: then it would not be known whether a pod was bound to the job.
func (w want) claimReady(ctx context.Context, skip []types.UID) (claim.Claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	return claim.Claim(ctx, w.client, claim.Request{Runner: w.runner, Shape: w.shape, Job: w.job.Meta, Skip: skip, Ready: true})
}
