//go:build linux

package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/proof"
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
	bothUp   func() bool   // the other container's PID 1 has started

	mu    sync.Mutex
	claim claimfile.Content // as it was first seen
}

func newWatch(limits idle.Limits, files agreement, bothUp func() bool, log *slog.Logger) *watch {
	return &watch{limits: limits, files: files, bothUp: bothUp, log: log, look: make(chan struct{}, 1), visited: make(chan struct{}, 1)}
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
	content, err := w.read()
	return content.State == idle.Claimed, err
}

// driver is the key of the driver that claimed the pod, nil where there is none.
func (w *watch) driver() (ed25519.PublicKey, error) {
	content, err := w.read()
	if err != nil || content.Key == "" {
		return nil, err
	}
	return proof.Parse(content.Key)
}

// read looks at the claim file until there is a claim, which was made before any script ran. What the file says later may be
// a job's doing, and nothing that a script of one container does may let it into the other one.
func (w *watch) read() (claimfile.Content, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claim.State == idle.Claimed {
		return w.claim, nil
	}
	content, err := w.files.Read()
	if content.State == idle.Claimed {
		w.claim = content
	}
	return content, err
}

// wait returns idle.End or idle.Abandon, or idle.Wait where the context ended first.
func (w *watch) wait(ctx context.Context) idle.Action {
	state := idle.State{Started: time.Now()}
	visited := false
	for {
		state = w.observe(state, visited)
		action, at := idle.Next(w.limits, state, time.Now())
		switch action {
		case idle.Expire:
			_, err := w.files.Expire()
			if err == nil {
				continue // the next look shows who was faster
			}
			w.log.Error("the pod can't expire; trying again", "error", err, "after", retryTime)
			at = time.Now().Add(retryTime)
		case idle.End, idle.Abandon:
			return action
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		visited = false
		select {
		case <-ctx.Done():
			return idle.Wait
		case <-timer:
		case <-w.look:
		case <-w.visited:
			visited = true
		}
	}
}

// observe looks at what the containers share and, while a driver is here, shows that to the other container.
func (w *watch) observe(state idle.State, visited bool) idle.State {
	sight := idle.Sight{Claim: state.Claim, Attached: w.attached.Load() > 0, Visited: visited, Mark: state.Mark}
	if state.Claim == idle.Unclaimed {
		content, err := w.read()
		if err != nil {
			w.log.Error("the claim can't be read", "error", err)
		}
		sight.Claim = content.State
		sight.Both = w.bothUp()
		if sight.Claim == idle.Claimed {
			w.log.Info("claimed", "job", content.Job)
		}
	}
	if sight.Claim == idle.Claimed {
		sight.Mark = w.mark(state.Mark, visited || sight.Attached)
	}
	return state.Look(sight, time.Now())
}

// mark returns the time of the last sign of a driver. Where the file is gone, or can't be looked at, the answer is a
// change: to take a job for abandoned needs evidence.
func (w *watch) mark(last time.Time, here bool) time.Time {
	if here {
		if err := w.files.Touch(); err != nil {
			w.log.Warn("the other container can't be told that a driver is attached", "error", err)
		}
	}
	mark, err := w.files.Touched()
	if errors.Is(err, fs.ErrNotExist) {
		if err = w.files.Touch(); err == nil {
			mark, err = w.files.Touched()
		}
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
