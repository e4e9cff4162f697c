//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
)

// retryTime is when to try again to expire a pod whose claim file can't be written.
const retryTime = 10 * time.Second

// agreement is what the containers of a pod share.
type agreement interface {
	Read() (claimfile.Content, error)
	Expire() (claimfile.Content, error)
	Touch() error
	Touched() (time.Time, error)
}

// watch waits for the end of a PID 1, as package idle decides it.
type watch struct {
	limits   idle.Limits
	files    agreement
	log      *slog.Logger
	look     chan struct{} // one token: look at the claim
	visited  chan struct{} // one token: a driver came or went
	attached atomic.Int32  // drivers that are attached to this container
}

func newWatch(limits idle.Limits, files agreement, log *slog.Logger) *watch {
	return &watch{limits: limits, files: files, log: log, look: make(chan struct{}, 1), visited: make(chan struct{}, 1)}
}

// poke makes wait look at the claim.
func (w *watch) poke() { leaveToken(w.look) }

// present is called with true when a driver attached, with false when it is gone.
func (w *watch) present(attached bool) {
	if attached {
		w.attached.Add(1)
	} else {
		w.attached.Add(-1)
	}
	leaveToken(w.visited)
}

func (w *watch) claimed() (bool, error) {
	content, err := w.files.Read()
	return content.State == idle.Claimed, err
}

// wait returns idle.End or idle.Abandon, or idle.Wait where the context ended first.
func (w *watch) wait(ctx context.Context) idle.Action {
	state := idle.State{Started: time.Now()}
	visit := false
	for {
		state = w.observe(state, visit)
		action, at := idle.Next(w.limits, state, time.Now())
		if action == idle.Expire {
			if _, err := w.files.Expire(); err == nil {
				continue
			} else {
				w.log.Error("the pod can't expire; trying again", "error", err, "after", retryTime)
				at = time.Now().Add(retryTime)
			}
		} else if action != idle.Wait {
			return action
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		visit = false
		select {
		case <-ctx.Done():
			return idle.Wait
		case <-timer:
		case <-w.look:
		case <-w.visited:
			visit = true
		}
	}
}

// observe looks at the files and, while a driver is here, shows that to the other container.
func (w *watch) observe(state idle.State, visit bool) idle.State {
	claim, mark := state.Claim, state.Mark
	if claim == idle.Unclaimed {
		content, err := w.files.Read()
		if err != nil {
			w.log.Error("the claim can't be read", "error", err)
		}
		claim = content.State
		if claim == idle.Claimed {
			w.log.Info("claimed", "job", content.Job)
		}
	}
	if claim == idle.Claimed {
		mark = w.mark(mark, visit)
	}
	state.Attached = w.attached.Load() > 0
	state = state.Look(claim, mark, time.Now())
	if visit {
		state.Seen = time.Now()
	}
	return state
}

// mark returns the time of the last sign of a driver. Where the file is gone, or can't be looked at, the answer is a
// change: to take a job for abandoned needs evidence.
func (w *watch) mark(last time.Time, visit bool) time.Time {
	if visit || w.attached.Load() > 0 {
		if err := w.files.Touch(); err != nil {
			w.log.Warn("the other container can't be told that a driver is attached", "error", err)
		}
	}
	mark, err := w.files.Touched()
	if errors.Is(err, fs.ErrNotExist) {
		err = w.files.Touch()
		mark = last.Add(1)
	}
	if err != nil {
		w.log.Warn("drivers of the other container can't be seen", "error", err)
		mark = last.Add(1)
	}
	return mark
}

func leaveToken(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
