//go:build linux

package script

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/process"
	"idlecount.dev/idlecount/entrypoint/spool"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// lingerTime is how long output may still be fetched after a script was ended for a reason other than a cancel.
const lingerTime = time.Second

// Why is the reason for which a script is ended before it ends by itself.
type Why int

// The reasons. Only a cancel was wanted by the driver; after the others it gets a failure in place of an exit code.
const (
	ByItself Why = iota
	Cancelled
	Replaced  // a new script came
	Stopped   // PID 1 was told to end
	Abandoned // no driver came back
)

// Run is a script that was started. Its output is in Out, its end is told by Ended.
type Run struct {
	ID    string
	Shell string
	Out   *spool.Spool

	seat  seat
	grace chan time.Duration // one place; sent to under mu only
	ended chan struct{}

	mu      sync.Mutex
	why     Why // the first reason
	dropped Why // the first reason for which the driver will get no exit code
	exit    wire.Exit
	failure *wire.Failure
}

// Ended is closed when the script has ended and Out has all that it wrote.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// Result is valid after Ended: the exit, or why there is none.
func (r *Run) Result() (wire.Exit, *wire.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit, r.failure
}

// End begins to end the script, or shortens the grace of an end that has begun. Of a script that has ended only what was
// not fetched is dropped, where the reason isn't a cancel.
func (r *Run) End(why Why, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == ByItself {
		r.why = why
	}
	if r.dropped == ByItself && why != Cancelled {
		r.dropped = why
	}
	select {
	case waiting := <-r.grace:
		grace = min(grace, waiting)
	default:
	}
	r.grace <- grace
}

func (r *Run) reasons() (why, dropped Why) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why, r.dropped
}

// start starts the shell, which opens its script by that name, and what follows the shell.
func (r *Run) start(procs *process.Table, env []string, name string, text *os.File, log *slog.Logger) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("open the script's standard input: %w", err)
	}
	defer null.Close()
	pipe, end, err := newPipe()
	if err != nil {
		return fmt.Errorf("make the pipe for the script's output: %w", err)
	}
	defer end.Close()
	files := []*os.File{null, end, end, textFd: text}
	child, err := procs.Start(r.Shell, []string{filepath.Base(r.Shell), name}, env, files)
	if err != nil {
		pipe.Close()
		return err
	}
	log.Info("run started", "id", r.ID, "shell", r.Shell)
	go r.follow(procs, child, newPump(pipe, r.Out), log, time.Now())
	return nil
}

// follow waits for the end of the script, natural or not, and for its output, and settles the result.
func (r *Run) follow(procs *process.Table, child *process.Child, pump *pump, log *slog.Logger, started time.Time) {
	go pump.run()
	ended := ByItself
	select {
	case <-child.Done():
	case grace := <-r.grace:
		select {
		case <-child.Done(): // it was faster
		default:
			ended, _ = r.reasons()
			log.Info("run is being ended", "id", r.ID, "reason", ended.String(), "grace", grace)
			if left := procs.End(child, grace, r.grace); left > 0 {
				log.Warn("processes survive SIGKILL", "count", left)
			}
		}
	}
	pump.shellGone()
	complete := r.drain(pump)
	code := 128 + int(unix.SIGKILL)
	select {
	case <-child.Done():
		code = child.Code()
	default: // killed, but hangs in the kernel
	}
	r.settle(code, ended, complete)
	log.Info("run ended", "id", r.ID, "code", code, "reason", ended.String(), "bytes", r.Out.End(),
		"duration", time.Since(started).Round(time.Millisecond))
	close(r.ended)
}

// drain waits until the output is in the spool. It can be full with nobody there to empty it; that ends when the run is
// given up, and the output is not complete then.
func (r *Run) drain(pump *pump) (complete bool) {
	var linger <-chan time.Time
	for {
		if _, dropped := r.reasons(); dropped != ByItself && linger == nil {
			linger = time.After(lingerTime)
		}
		select {
		case <-pump.drained:
			return true
		case <-r.grace:
		case <-linger:
			pump.giveUp()
			<-pump.drained
			return false
		}
	}
}

// settle decides what the driver is told. A script that was cut short for a reason other than its driver's has no exit
// code worth having; one that came through although the container was told to stop has done its work.
func (r *Run) settle(code int, ended Why, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cut := ended != ByItself && ended != Cancelled && (ended != Stopped || code != 0)
	if cut || !complete {
		r.failure = &wire.Failure{Message: fmt.Sprintf("script %s was ended: %s", r.ID, r.dropped)}
		return
	}
	r.exit = wire.Exit{Code: code, Offset: r.Out.End(), Cancelled: ended == Cancelled}
}

func (w Why) String() string {
	switch w {
	case ByItself:
		return "it ended by itself"
	case Cancelled:
		return "it was cancelled"
	case Replaced:
		return "another script took its place"
	case Stopped:
		return "the container was told to stop"
	case Abandoned:
		return "no driver was attached for the abandon time"
	}
	return "unknown"
}
