package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// Opener makes a connection to `entrypoint run --id ID` in a container. It may return before the connection stands; what
// goes wrong then comes out of Read. Closing it ends all that waits in Read and Write.
type Opener func(ctx context.Context) (io.ReadWriteCloser, error)

// Script is what to run; ID names this one run of it.
type Script struct {
	ID   string
	Text []byte
}

// End is what became of the pod while a script runs in it.
type End struct {
	Reason string
	Gone   bool          // nothing runs any more; else the pod is told to end
	Grace  time.Duration // how long the pod may go on
}

// Options are what Follow is given beside the script.
type Options struct {
	Open   Opener
	Output io.Writer // gets each byte of the script's output once

	// Check is asked after a failed attempt to connect: an error is the reason for which the script can't go on. It
	// returns nil where it doesn't know.
	Check func(ctx context.Context, cause error) error
	// Ends tells what becomes of the pod, as it happens.
	Ends <-chan End
	// Cancel ends the script: TERM now, KILL after the duration.
	Cancel <-chan time.Duration
	// CancelUnseen cancels a run of which nothing was heard yet, without starting it.
	CancelUnseen func(ctx context.Context, grace time.Duration) error
	// Notice takes a line for people.
	Notice func(line string)

	Timing Timing
}

// Timing is how long Follow waits for what.
type Timing struct {
	Silence      time.Duration // without a frame: the connection is dead
	Ping         time.Duration // between our own signs of life
	AckAfter     time.Duration // output is acknowledged at least so often
	AckBytes     int64         // … and after so many bytes
	MaxBackoff   time.Duration // between attempts to connect
	Patience     time.Duration // without a connection, in all
	NoticeAfter  time.Duration // of an outage it takes to be worth a line
	Drain        time.Duration // for what is still under way when the pod is gone
	Reason       time.Duration // for the cluster to say why it ended a script that had begun
	CancelExtra  time.Duration // beyond the grace until a cancelled script is given up
	DoneDelivery time.Duration // for the word that the exit was taken
}

// DefaultTiming is for a pod whose PID 1 waits abandon for a driver to come back.
func DefaultTiming(abandon time.Duration) Timing {
	return Timing{
		Silence:      3 * wire.PingInterval,
		Ping:         wire.PingInterval,
		AckAfter:     time.Second,
		AckBytes:     256 << 10,
		MaxBackoff:   5 * time.Second,
		Patience:     abandon,
		NoticeAfter:  3 * time.Second,
		Drain:        2 * time.Second,
		Reason:       10 * time.Second,
		CancelExtra:  15 * time.Second,
		DoneDelivery: 250 * time.Millisecond,
	}
}

// ErrCancelled is the outcome of a script that was cancelled and whose exit could not be had.
var ErrCancelled = errors.New("cancelled")

// lostError is a connection that broke; another one may do better. All other errors are final.
type lostError struct{ cause error }

func (e *lostError) Error() string { return e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

// AnswerError is the entrypoint's word that the script can't be started or followed now; it may be later. It is the cause
// of a failed attempt to connect.
type AnswerError struct{ Message string }

func (e *AnswerError) Error() string { return e.Message }

// refusedError is the entrypoint's word that it can't start or follow the script.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return "the pod can't run the script: " + e.message }

// follower is the state of one Follow that outlives a connection.
type follower struct {
	script Script
	Options

	offset   int64          // bytes of output passed on
	lastByte byte           // of the output
	met      bool           // a hello was seen: the script has been started
	grace    *time.Duration // cancelled, with this grace
	giveUp   <-chan time.Time
	end      *End
	heard    time.Time // the last frame, or the start
	failures int       // attempts in a row that brought nothing
	noticed  bool      // the present outage was told
}

// Follow runs the script and passes its output on until it ends, over as many connections as it takes. An error means
// that the script's end is not known: its text is the reason, never something that the script did.
func Follow(ctx context.Context, script Script, options Options) (wire.Exit, error) {
	f := &follower{script: script, Options: options, heard: time.Now()}
	for {
		exit, err := f.connect(ctx)
		if err == nil {
			return f.conclude(exit)
		}
		lost, ok := errors.AsType[*lostError](err)
		if !ok {
			return wire.Exit{}, f.explain(ctx, err)
		}
		if err := f.pause(ctx, lost.cause); err != nil {
			return wire.Exit{}, err
		}
	}
}

// explain puts what became of the pod before what its entrypoint said: a PID 1 that is told to stop can't know why.
func (f *follower) explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*refusedError](err); !ok {
		return err
	}
	if f.end != nil {
		return fmt.Errorf("%s; %w", f.end.Reason, err)
	}
	if why := f.Check(ctx, err); why != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	if !f.met {
		return err // nothing was begun that the cluster could have ended
	}
	// A kubelet that ends a pod (its deadline, memory of the node) only says why when all of its containers have stopped.
	select {
	case end := <-f.Ends:
		return fmt.Errorf("%s; %w", end.Reason, err)
	case <-time.After(f.Timing.Reason):
	case <-ctx.Done():
	}
	return err
}

// conclude decides what an exit is worth: a script that failed while its pod was being ended says nothing about the script.
func (f *follower) conclude(exit wire.Exit) (wire.Exit, error) {
	if f.end != nil && exit.Code != 0 && f.grace == nil {
		return wire.Exit{}, fmt.Errorf("%s; the script ended with exit code %d", f.end.Reason, exit.Code)
	}
	return exit, nil
}

// pause waits before the next attempt to connect, or says why there is none.
func (f *follower) pause(ctx context.Context, cause error) error {
	f.failures++
	if f.end != nil && f.end.Gone {
		return errors.New(f.end.Reason)
	}
	if f.failures == 1 {
		return nil // most connections break alone: an apiserver that is replaced by another one, a proxy's time limit
	}
	if err := f.Check(ctx, cause); err != nil {
		return err
	}
	if f.end != nil {
		return fmt.Errorf("%s; the connection to it broke: %w", f.end.Reason, cause)
	}
	if f.grace != nil && !f.met {
		return f.cancelUnseen(ctx)
	}
	out := time.Since(f.heard)
	if out > f.Timing.Patience {
		return fmt.Errorf("no connection to the script for %s, the pod has given the job up by now: %w", out.Round(time.Second), cause)
	}
	if out > f.Timing.NoticeAfter && !f.noticed {
		f.noticed = true
		line := fmt.Sprintf("the connection to the script broke (%v); trying to connect again, the script goes on meanwhile", cause)
		if !f.met {
			line = fmt.Sprintf("the script can't be started yet (%v); trying again", cause)
		}
		f.say(line)
	}
	return f.wait(ctx, backoff(f.failures, f.Timing.MaxBackoff))
}

// wait lets time pass, but not past news that makes waiting pointless.
func (f *follower) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.giveUp:
			return ErrCancelled
		case grace := <-f.Cancel:
			f.cancel(grace)
			if !f.met {
				return f.cancelUnseen(ctx)
			}
		case end := <-f.Ends:
			f.ends(end)
			if end.Gone {
				return errors.New(end.Reason)
			}
		}
	}
}

// backoff grows from a tenth of a second, with jitter so that the jobs of a runner don't come back in step.
func backoff(failures int, most time.Duration) time.Duration {
	d := min(100*time.Millisecond<<min(failures-2, 10), most)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}

func (f *follower) cancel(grace time.Duration) {
	f.grace = &grace
	f.giveUp = time.After(grace + f.Timing.CancelExtra)
}

// cancelUnseen is for a script that may have been started though no word of it came back: the header that would tell
// could start it.
func (f *follower) cancelUnseen(ctx context.Context) error {
	if err := f.CancelUnseen(ctx, *f.grace); err != nil {
		return fmt.Errorf("%w; the script may still run: %w", ErrCancelled, err)
	}
	return ErrCancelled
}

// ends takes the news in; that the pod is told to end is worth a line at once, that it is gone is the error's.
func (f *follower) ends(end End) {
	if f.end == nil && !end.Gone {
		f.say(end.Reason)
	}
	f.end = &end
}

// say puts a line of ours on a line of its own, without touching the output.
func (f *follower) say(line string) {
	if f.offset > 0 && f.lastByte != '\n' {
		line = "\n" + line
	}
	f.Notice(line)
}
