// Package process starts processes that outlive their parent and finds them again later.
//
// It owns the identity of a process: pid, start time and boot, so that a pid from an old file is never taken for
// the process it once named. It refuses to signal anything whose identity does not match.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process for ever. A pid alone is reused, pid and start time alone can meet again after a reboot.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is the 22nd field of /proc/<pid>/stat: clock ticks between boot and the start of the process.
	StartTicks uint64 `json:"startTicks"`
	// Boot is /proc/sys/kernel/random/boot_id.
	Boot string `json:"boot"`
}

// Command is what Start runs.
type Command struct {
	Path string
	Args []string
	// Env is the whole environment: what the caller has in its own (a proxy, tokens of a CI job) is none of a process's
	// business that lives on.
	Env []string
	// Log gets stdout and stderr, appended.
	Log string
}

// logLimit is the size from which a log is put aside (as <name>.old) when its process starts again.
const logLimit = 64 << 20

// Start runs the command in a session of its own, so that neither the end of the caller nor a ^C in its terminal
// reaches it. It returns as soon as the process exists.
func Start(c Command) (Identity, error) {
	log, err := openLog(c.Log)
	if err != nil {
		return Identity{}, err
	}
	defer log.Close() // the child has its own descriptor

	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Identity{}, fmt.Errorf("start %s: %w", c.Path, err)
	}
	// Until Wait is called even a dead child keeps its pid, so this reads the right process.
	id, _, err := read(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // no zombie while the caller lives
	if err != nil {
		return Identity{}, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return id, nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// Of returns the identity of the process that has this pid now. A zombie counts as gone: os.ErrNotExist.
func Of(pid int) (Identity, error) {
	id, state, err := read(pid)
	if err != nil {
		return Identity{}, err
	}
	if state == 'Z' || state == 'X' {
		return Identity{}, fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	return id, nil
}

// Alive says whether this very process still runs, with any of its threads.
func (id Identity) Alive() bool {
	fd, err := id.open()
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// Started returns when the process started, to about a second.
func (id Identity) Started() time.Time {
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}
	}
	up, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return time.Time{}
	}
	const ticksPerSecond = 100 // USER_HZ on every architecture that Go runs on
	age := seconds - float64(id.StartTicks)/ticksPerSecond
	return time.Now().Add(-time.Duration(age * float64(time.Second))).Truncate(time.Second)
}

// Signal sends sig to this very process, or returns os.ErrProcessDone when it is gone.
func (id Identity) Signal(sig syscall.Signal) error {
	fd, err := id.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// open returns a handle of this very process, or os.ErrProcessDone. The handle is taken before the identity is checked:
// from then on the pid can't come to mean another process.
func (id Identity) open() (fd int, err error) {
	if id.PID <= 0 {
		return 0, os.ErrProcessDone
	}
	fd, openErr := unix.PidfdOpen(id.PID, 0)
	if now, _, err := read(id.PID); err != nil || now != id {
		openErr = os.ErrProcessDone // whatever the handle is of, also if it is of nothing
	}
	if openErr == nil {
		// The state in /proc is that of the first thread: the process may still have others, and with them its files
		// and listeners, when that says "zombie".
		var ended bool
		if ended, openErr = pollEnd(fd, 0); ended {
			openErr = os.ErrProcessDone
		}
	}
	if openErr == nil {
		return fd, nil
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	if errors.Is(openErr, os.ErrProcessDone) {
		return 0, openErr
	}
	return 0, fmt.Errorf("open process %d: %w", id.PID, openErr)
}

// pollEnd waits until the last thread of a process has ended, but only for so long.
func pollEnd(fd int, timeout time.Duration) (ended bool, err error) {
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(timeout.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return ready > 0, err
}

// Wait returns when the process is gone, or with the context's error.
func (id Identity) Wait(ctx context.Context) error {
	fd, err := id.open()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		ended, err := pollEnd(fd, 50*time.Millisecond) // now and then to look at the context
		if err != nil {
			return fmt.Errorf("wait for process %d: %w", id.PID, err)
		}
		if ended {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d has not ended: %w", id.PID, context.Cause(ctx))
		}
	}
}

// Stop asks the process to end with SIGTERM and kills it after grace. It returns when it is gone.
func (id Identity) Stop(ctx context.Context, grace time.Duration) error {
	if err := id.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return err
	}
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if id.Wait(graceful) == nil {
		return nil
	}
	return id.Kill(ctx)
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (id Identity) Kill(ctx context.Context) error {
	if err := id.Signal(syscall.SIGKILL); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return err
	}
	return id.Wait(ctx)
}

// BelowFolder returns the processes whose executable lies below the folder, also when the file is deleted meanwhile.
// It finds what was started by someone who died before writing it down.
func BelowFolder(folder string) ([]Identity, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	prefix := filepath.Clean(folder) + string(filepath.Separator)
	var found []Identity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process may end between any two of these lines; then it is simply not found.
		exe, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil || !strings.HasPrefix(exe, prefix) {
			continue
		}
		if id, err := Of(pid); err == nil {
			found = append(found, id)
		}
	}
	return found, nil
}

// Name returns the process's name as the kernel shows it, "" when it is gone.
func Name(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// BootID names the current boot of the machine.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(id)), nil
}

func read(pid int) (Identity, byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		// ESRCH: the process ended between open and read.
		if errors.Is(err, unix.ESRCH) {
			err = os.ErrNotExist
		}
		return Identity{}, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	state, ticks, err := parseStat(stat)
	if err != nil {
		return Identity{}, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	boot, err := BootID()
	if err != nil {
		return Identity{}, 0, err
	}
	return Identity{PID: pid, StartTicks: ticks, Boot: boot}, state, nil
}

// parseStat reads the state and the start time of proc_pid_stat(5). The second field, the name, is in parentheses
// and may hold spaces and parentheses itself, so the fields are counted from the last one.
func parseStat(stat []byte) (state byte, startTicks uint64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("no name in stat line %q", stat)
	}
	const stateField, startField = 3, 22
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= startField-stateField {
		return 0, 0, fmt.Errorf("stat line too short: %q", stat)
	}
	startTicks, err = strconv.ParseUint(fields[startField-stateField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time in stat line %q: %w", stat, err)
	}
	return fields[0][0], startTicks, nil
}
