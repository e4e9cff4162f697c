//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/attach"
	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/peer"
	"idlecount.dev/idlecount/entrypoint/process"
	"idlecount.dev/idlecount/entrypoint/script"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	// stopGrace is what a script gets when the container is told to stop; the kubelet's own patience is 30 s by default.
	stopGrace    = 25 * time.Second
	abandonGrace = 10 * time.Second
	// terminationLog is where Kubernetes takes the reason of a container's end from.
	terminationLog = "/dev/termination-log"
)

// serve is PID 1. It returns the exit code when it is over, or why it can't begin.
func serve(runDir string, env []string, stderr io.Writer) (int, error) {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	set, err := parseSettings(env)
	if err != nil {
		return 0, err
	}
	if set.role == wire.Helper {
		unix.Umask(0) // the build container may run as another user, and must be able to change what was fetched here
	}
	procs, err := process.New()
	if err != nil {
		return 0, err
	}
	files := claimfile.Dir(runDir)
	if err := files.Make(); err != nil {
		return 0, err
	}
	// The folder is the init container's user's, who may move what others have there. A job that runs as that user by
	// chance must not where the helper is root. Without the right to do this it stays as it is.
	if os.Geteuid() == 0 {
		_ = os.Lchown(runDir, 0, 0)
	}
	own := filepath.Join(runDir, string(set.role))
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("make the folder of this container: %w", err)
	}
	scriptEnv, err := scriptEnvironment(set.role, filepath.Join(own, "bin"), env)
	if err != nil {
		log.Warn("gitlab-runner will not be found by scripts", "error", err)
	}
	listener, err := peer.Listen(runDir, set.role)
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	signal.Notify(make(chan os.Signal, 1), deafTo()...)
	// A node stops a container with the signal that its image names: nginx's has SIGQUIT, httpd's SIGWINCH.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH)
	defer stop()
	go procs.Reap()

	runner := script.NewRunner(procs, scriptEnv, filepath.Join(own, "script"), log)
	bothUp := func() bool { _, err := os.Stat(wire.Socket(runDir, other(set.role))); return err == nil }
	watch := newWatch(set.limits, files, bothUp, log)
	server := attach.Server{Runner: runner, Log: log, Poked: watch.poke, Driver: watch.driver, Claimed: watch.claimed, Present: watch.present}
	go server.Serve(listener)
	peer.Poke(runDir, other(set.role)) // its idle clock starts with the later of both containers
	shell, err := script.FindShell(scriptEnv)
	if err != nil {
		log.Warn("scripts can't be run", "error", err)
	}
	log.Info("started", "role", set.role, "idle_time", set.limits.Idle, "abandon_time", set.limits.Abandon, "shell", shell,
		"protocol", wire.Protocol)
	action := watch.wait(ctx)
	return end(action, set, runDir, runner, log), nil
}

// deafTo are the signals that mean nothing to PID 1 and would end a Go program, most of them with a dump of its stacks. The
// kernel keeps signals of a container's processes from a PID 1 that has no handler; Go has one for each.
func deafTo() []os.Signal {
	return []os.Signal{
		unix.SIGHUP, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGUSR1, unix.SIGSEGV, unix.SIGUSR2,
		unix.SIGPIPE, unix.SIGALRM, unix.SIGSTKFLT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ,
		unix.SIGVTALRM, unix.SIGPROF, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
	}
}

// end ends what runs, says why, and returns the exit code.
func end(action idle.Action, set settings, runDir string, runner *script.Runner, log *slog.Logger) int {
	code, reason := wire.ExitStopped, "told to stop"
	why, grace := script.Stopped, stopGrace
	switch action {
	case idle.End:
		code, reason = wire.ExitOK, fmt.Sprintf("expired: nobody claimed the pod for %s", set.limits.Idle)
	case idle.Abandon:
		code, reason = wire.ExitAbandoned, fmt.Sprintf("abandoned: no driver was attached for %s", set.limits.Abandon)
		why, grace = script.Abandoned, abandonGrace
	default:
		// A claim that comes at this moment must not succeed.
		if content, err := claimfile.Dir(runDir).Expire(); err == nil && content.State == idle.Expired {
			code = wire.ExitOK
		}
	}
	log.Info("ending", "reason", reason, "code", code)
	if err := leaveReason(reason); err != nil {
		log.Warn("the reason can't be left for the kubelet", "error", err)
	}
	peer.Poke(runDir, other(set.role))
	runner.Close(why, grace)
	return code
}

// leaveReason writes the termination message, where the kubelet has mounted a file for it.
func leaveReason(reason string) error {
	file, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, reason+"\n")
	return errors.Join(err, file.Close())
}

func other(role wire.Role) wire.Role {
	if role == wire.Build {
		return wire.Helper
	}
	return wire.Build
}

// scriptEnvironment is that of scripts. In the helper container they find gitlab-runner, under which name GitLab's
// scripts call what GitLab's helper image has as gitlab-runner-helper; the folder is for a link.
func scriptEnvironment(role wire.Role, folder string, env []string) ([]string, error) {
	const wanted, present = "gitlab-runner", "gitlab-runner-helper"
	if role != wire.Helper || script.LookPath(env, wanted) != "" {
		return script.Environment(env), nil
	}
	target := script.LookPath(env, present)
	if target == "" {
		return script.Environment(env), fmt.Errorf("neither %s nor %s is in this container: caches and artifacts won't work", wanted, present)
	}
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return script.Environment(env), err
	}
	if err := os.Symlink(target, filepath.Join(folder, wanted)); err != nil && !errors.Is(err, fs.ErrExist) {
		return script.Environment(env), err
	}
	return script.Environment(env, folder), nil
}
