//go:build linux

// Package script runs the scripts of a container, one at a time: it owns the shell's process, its output until a driver
// has taken it, and its exit code. It starts nothing twice, and it knows no connections: whoever follows a run takes its
// seat. Script text is never in a file system, an argument or an environment.
package script

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/process"
	"idlecount.dev/idlecount/entrypoint/spool"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// Graces: what a script gets that a new one replaces, and what processes get that outlived their script when PID 1 ends.
const (
	replacedGrace = 5 * time.Second
	leftoverGrace = 2 * time.Second
)

// Runner runs scripts.
type Runner struct {
	procs *process.Table
	env   []string
	name  string // see NewRunner
	log   *slog.Logger

	starting sync.Mutex // held while one script makes way for the next

	mu      sync.Mutex
	known   map[string]past // by id
	current *Run
	count   uint64 // of attachments
	closed  Why    // set when nothing may start any more
}

// past is what is known of an id. Fate is empty where its run is the current one, else what an attachment is told.
type past struct {
	digest string
	fate   string
}

// Attachment is a run to follow. Number orders the attachments, for Run.Sit.
type Attachment struct {
	Run     *Run
	Number  uint64
	Started bool
}

// NewRunner returns a runner whose scripts get the environment as it is. The path called name becomes a link to whatever
// script a shell is given, for the sake of the shell's messages: they begin with the name of the script.
func NewRunner(procs *process.Table, env []string, name string, log *slog.Logger) *Runner {
	_ = os.Remove(name)
	if err := os.Symlink(textPath, name); err != nil {
		log.Warn("scripts go by another name", "name", textPath, "error", err)
	}
	return &Runner{procs: procs, env: env, name: name, log: log, known: map[string]past{}}
}

// scriptName is the path by which a shell opens its script. The link lies where a job may remove it.
func (r *Runner) scriptName() string {
	if target, err := os.Readlink(r.name); err == nil && target == textPath {
		return r.name
	}
	return textPath
}

// Admit starts the script of a header, or finds its run where the id is known. Another run is ended first. The text, nil
// where none came, is the caller's to close.
func (r *Runner) Admit(header wire.RunHeader, text *os.File) (Attachment, *wire.Failure) {
	r.starting.Lock()
	defer r.starting.Unlock()
	old, attachment, failure := r.find(header, text != nil)
	if failure != nil || attachment.Run != nil {
		return attachment, failure
	}
	if old != nil {
		old.End(Replaced, replacedGrace)
		<-old.Ended()
		old.seat.vacate()
	}
	return r.start(header, text)
}

// find looks the id up. The run to replace, if any, is returned where a script has to be started.
func (r *Runner) find(header wire.RunHeader, complete bool) (old *Run, found Attachment, failure *wire.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != ByItself {
		return nil, found, &wire.Failure{Message: "no script is started any more: " + r.closed.String()}
	}
	before, ok := r.known[header.ID]
	start, failure := admit(header, before, ok, complete)
	if failure != nil || start {
		return r.current, found, failure
	}
	r.count++
	return nil, Attachment{Run: r.current, Number: r.count}, nil
}

// admit decides what becomes of a header, given what is known of its id and whether all of its script has come.
func admit(header wire.RunHeader, before past, known, complete bool) (start bool, failure *wire.Failure) {
	switch {
	case !known && complete:
		return true, nil
	case !known:
		return false, &wire.Failure{Message: fmt.Sprintf("no script %s was started here", header.ID)}
	case before.fate != "":
		return false, &wire.Failure{Message: fmt.Sprintf("script %s can't be followed: %s", header.ID, before.fate)}
	case header.ScriptSHA256 != "" && header.ScriptSHA256 != before.digest:
		return false, &wire.Failure{Message: fmt.Sprintf("another script was started as %s; each run needs an id of its own", header.ID)}
	}
	return false, nil
}

func (r *Runner) start(header wire.RunHeader, text *os.File) (Attachment, *wire.Failure) {
	shell, err := FindShell(r.env)
	if err != nil {
		return Attachment{}, &wire.Failure{Message: err.Error()}
	}
	run := &Run{ID: header.ID, Shell: shell, Out: spool.New(wire.Window), grace: make(chan time.Duration, 1), ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != ByItself {
		return Attachment{}, &wire.Failure{Message: "no script is started any more: " + r.closed.String()}
	}
	if err := run.start(r.procs, r.env, r.scriptName(), text, r.log); err != nil {
		again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) // the container's limits, which may be free soon
		return Attachment{}, &wire.Failure{Message: err.Error(), Retry: again}
	}
	if r.current != nil {
		r.forget(r.current.ID, "script "+header.ID+" was started after it")
	}
	r.known[header.ID] = past{digest: header.ScriptSHA256}
	r.current = run
	r.count++
	return Attachment{Run: run, Number: r.count, Started: true}, nil
}

// forget is called with the lock held.
func (r *Runner) forget(id, fate string) {
	before := r.known[id]
	before.fate = fate
	r.known[id] = before
}

// Cancel ends the script with that id. One that isn't known will not be started when it comes; one that has ended is left
// alone.
func (r *Runner) Cancel(id string, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.known[id]
	switch {
	case !known:
		r.known[id] = past{fate: "it was cancelled before it was started"}
		r.log.Info("run cancelled before it was started", "id", id)
	case before.fate == "":
		r.current.End(Cancelled, grace)
	}
}

// Close ends what runs, and starts nothing any more. It returns when nothing is left that descends from this process; a
// driver that is attached has had its result by then, unless it doesn't take it.
func (r *Runner) Close(why Why, grace time.Duration) {
	r.mu.Lock()
	r.closed = why
	run := r.current
	r.mu.Unlock()
	if run != nil {
		run.End(why, grace)
		<-run.Ended()
		run.seat.drain(lingerTime)
	}
	if !r.procs.Alone() {
		if left := r.procs.End(nil, leftoverGrace, nil); left > 0 {
			r.log.Warn("processes survive SIGKILL", "count", left)
		}
	}
}
