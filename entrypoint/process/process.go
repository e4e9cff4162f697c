//go:build linux

// Package process starts and ends the processes of a container for a PID 1: every child is waited for here, its own and
// the orphans that end up with it, and nothing else in the program may wait for one. It knows no scripts and no drivers.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Table holds the children of this process.
type Table struct {
	mu       sync.Mutex
	children map[int]*Child
	changed  chan struct{} // closed and replaced after children were reaped
}

// Child is a process that Start started.
type Child struct {
	Pid    int
	done   chan struct{}
	status unix.WaitStatus
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code is the exit code of a process that has ended, in the words of a shell: 128+n where signal n ended it.
func (c *Child) Code() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// New returns a table, and makes this process the one that orphans below it go to, as they do to a PID 1.
func New() (*Table, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return &Table{children: map[int]*Child{}, changed: make(chan struct{})}, nil
}

// Reap waits for children, for ever. It wakes up for SIGCHLD only.
func (t *Table) Reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for {
		t.reapAll()
		<-signals
	}
}

func (t *Table) reapAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	reaped := false
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		reaped = true
		if child := t.children[pid]; child != nil {
			delete(t.children, pid)
			child.status = status
			close(child.done)
		}
	}
	if reaped {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// Start starts a program in a session of its own.
func (t *Table) Start(path string, argv []string, env []string, files []*os.File) (*Child, error) {
	attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, file := range files {
		attr.Files = append(attr.Files, file.Fd())
	}
	// The lock: a child that ends at once must not be reaped before it is known.
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	child := &Child{Pid: pid, done: make(chan struct{})}
	t.children[pid] = child
	return child, nil
}

// signalGroup sends a signal to a child's process group, unless the child was waited for: its number may be another's.
func (t *Table) signalGroup(child *Child, sig unix.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.children[child.Pid] == child {
		_ = unix.Kill(-child.Pid, sig) // it may just have ended
	}
}

// Changed is closed after the next child was reaped.
func (t *Table) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Alone is true where no process descends from this one: orphans below come here, so whoever has a descendant has a child.
func (t *Table) Alone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
	}
}
