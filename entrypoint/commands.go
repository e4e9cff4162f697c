//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"idlecount.dev/idlecount/entrypoint/attach"
	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/peer"
	"idlecount.dev/idlecount/entrypoint/script"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/internal/version"
)

const (
	// dialTime is how long a command waits for a PID 1 that doesn't listen yet.
	dialTime = 5 * time.Second
	// streamTime is how long a claim waits for one to say where it listens for drivers. They can come by exec.
	streamTime = time.Second
)

// run does what the arguments say, and returns the exit code.
func run(args, env []string, std streams) int {
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(std.out, usage)
		return wire.ExitOK
	}
	if err != nil {
		fmt.Fprintf(std.err, "entrypoint: %v\n%s\n", err, usage)
		return wire.ExitUsage
	}
	// Each thread costs memory, in every pod of a node with many cores; there is never much to do at once.
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	runDir := filepath.Join(c.dir, filepath.Base(wire.RunDir))
	code := wire.ExitOK
	switch c.name {
	case wire.CommandInstall:
		err = install(c.dir, runDir)
	case wire.CommandServe:
		code, err = serve(runDir, env, std.err)
	case wire.CommandPause:
		pause()
	case wire.CommandClaim:
		code, err = claim(runDir, c.job, c.key, env, std.out)
	case wire.CommandRun:
		err = relay(runDir, c.id, env, std)
	case wire.CommandCancel:
		err = cancel(runDir, c.id, c.grace, env)
	case commandVersion:
		fmt.Fprintln(std.out, version.Line("entrypoint", wire.Protocol))
	}
	if err != nil {
		fmt.Fprintf(std.err, "entrypoint: %s: %v\n", c.name, err)
		return wire.ExitError
	}
	return code
}

// install puts this program and the folder for claims and sockets where the other containers of the pod find them.
func install(dir, runDir string) error {
	if err := claimfile.Dir(runDir).Make(); err != nil {
		return err
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	defer from.Close()
	path := filepath.Join(dir, "bin", filepath.Base(wire.Binary))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make a folder for the program: %w", err)
	}
	// Whatever the umask was, the job's user must be able to run it.
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(path), ".install-*")
	if err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	defer os.Remove(to.Name())
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	return os.Rename(to.Name(), path)
}

// claim binds the pod to a job, unless somebody was faster, and prints what became of it.
func claim(runDir, job, key string, env []string, out io.Writer) (int, error) {
	content, err := claimfile.Dir(runDir).Claim(job, key)
	if err != nil {
		return wire.ExitError, err
	}
	var streams map[wire.Role]wire.Stream
	if key == "" || content.Job != job || content.Key != key {
		peer.Poke(runDir, wire.Build, wire.Helper) // who asks for a stream pokes too
	} else {
		streams = askForStreams(runDir)
	}
	shell, err := script.FindShell(script.Environment(env))
	if err != nil {
		shell = "" // the claim is valid; a run will say what is missing
	}
	result := wire.ClaimResult{Protocol: wire.Protocol, Result: "claimed", Job: content.Job, Shell: shell, Streams: streams}
	code := wire.ExitOK
	switch {
	case content.State == idle.Expired:
		result.Result, code = "expired", wire.ExitExpired
	case content.Job != job:
		result.Result, code = "other", wire.ExitOther
	}
	return code, json.NewEncoder(out).Encode(result)
}

// askForStreams asks the PID 1s of the pod where they listen for the driver. One that doesn't answer is left out.
func askForStreams(runDir string) map[wire.Role]wire.Stream {
	ctx, stop := context.WithTimeout(context.Background(), streamTime)
	defer stop()
	roles := [...]wire.Role{wire.Build, wire.Helper}
	var answers [len(roles)]wire.Stream
	var asking sync.WaitGroup
	for i, role := range roles {
		asking.Go(func() { answers[i], _ = peer.Stream(ctx, runDir, role) })
	}
	asking.Wait()
	streams := map[wire.Role]wire.Stream{}
	for i, answer := range answers {
		if answer.Port != 0 {
			streams[roles[i]] = answer
		}
	}
	return streams
}

// relay connects the standard streams with PID 1 until either side ends.
func relay(runDir, id string, env []string, std streams) error {
	conn, err := request(runDir, env, wire.Request{Command: wire.CommandRun, ID: id})
	if err != nil {
		_ = attach.WriteMessage(std.out, wire.FrameError, wire.Failure{Message: err.Error(), Retry: true})
		return err
	}
	defer conn.Close()
	ended := make(chan error, 2)
	go func() {
		// PID 1 may close first, and have said why: only the driver's end ends the relay.
		if _, err := io.Copy(conn, std.in); err == nil {
			ended <- nil
		}
	}()
	go func() {
		_, err := io.Copy(std.out, conn)
		if errors.Is(err, syscall.ECONNRESET) {
			err = nil // PID 1 closed with something of the driver's unread, and all that it said has been passed on
		}
		ended <- err
	}()
	return <-ended
}

// cancel returns when PID 1 has begun to end the script.
func cancel(runDir, id string, grace time.Duration, env []string) error {
	conn, err := request(runDir, env, wire.Request{Command: wire.CommandCancel, ID: id, Grace: grace})
	if err != nil {
		return err
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the answer of PID 1: %w", err)
	}
	var failure wire.Failure
	if err := json.Unmarshal(line, &failure); err != nil {
		return fmt.Errorf("read the answer of PID 1: %w", err)
	}
	if failure.Message != "" {
		return errors.New(failure.Message)
	}
	return nil
}

// request connects to the PID 1 of this container and says what is wanted.
func request(runDir string, env []string, request wire.Request) (io.ReadWriteCloser, error) {
	role, err := parseRole(variable(env, wire.EnvRole))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), dialTime)
	defer stop()
	conn, err := peer.Dial(ctx, runDir, role)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, errors.Join(fmt.Errorf("ask PID 1: %w", err), conn.Close())
	}
	return conn, nil
}

// variable is the value of the last entry of that name.
func variable(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
