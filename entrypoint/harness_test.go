//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// patience is how long a test waits for what has to come; it is never a measure of anything.
const patience = 30 * time.Second

// built returns the entrypoint as it is released, built once; with the race detector where the tests have it.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "entrypoint-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "entrypoint")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if raced {
		cmd = exec.Command("go", "build", "-race", "-buildvcs=false", "-ldflags", "-linkmode external -extldflags -static", "-o", path, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the entrypoint: %w\n%s", err, out)
	}
	return path, nil
})

// askEnv makes this program one that cancels a run at the socket it names, without asking who serves it.
const askEnv = "ENTRYPOINT_TEST_ASK"

func ask(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = io.WriteString(conn, `{"command":"cancel","id":"none"}`+"\n")
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// dumpEnv makes this program the entrypoint, and one that says what its goroutines do when it is told to by dumpSignal, and
// ends. The entrypoint itself does that for no signal: a script could send it.
const dumpEnv = "ENTRYPOINT_TEST_DUMP"

const dumpSignal = syscall.Signal(40)

func serveAndDump() int {
	told := make(chan os.Signal, 1)
	signal.Notify(told, dumpSignal)
	go func() {
		<-told
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(0)
	}()
	return run(os.Args[1:], os.Environ(), streams{os.Stdin, os.Stdout, os.Stderr})
}

func TestMain(m *testing.M) {
	if os.Getenv(dumpEnv) != "" {
		os.Exit(serveAndDump())
	}
	if socket := os.Getenv(askEnv); socket != "" {
		os.Exit(ask(socket))
	}
	code := m.Run()
	if path, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func theBinary(t testing.TB) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

// pod is a folder that containers share. Its name is short: the path of a socket is.
type pod struct {
	dir string
	env []string // of the containers
	// enter is put before the command line of what is started in the container of a role, as an exec does.
	enter func(role wire.Role) []string
}

func newPod(t testing.TB) *pod {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod-") //nolint:usetesting // t.TempDir is too long for a socket, and closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return &pod{dir: dir, env: []string{"PATH=" + os.Getenv("PATH")}}
}

func (p *pod) runDir() string { return filepath.Join(p.dir, "run") }

// command is one of the entrypoint in a container.
func (p *pod) command(t testing.TB, role wire.Role, args ...string) *exec.Cmd {
	t.Helper()
	var argv []string
	if p.enter != nil {
		argv = append(p.enter(role), wire.Binary)
		argv = append(argv, args...)
	} else {
		argv = append([]string{theBinary(t)}, args...)
		argv = append(argv, "--dir", p.dir)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append([]string{wire.EnvRole + "=" + string(role)}, p.env...)
	return cmd
}

// first is a PID 1, or stands for one.
type first struct {
	cmd    *exec.Cmd
	log    *lockedBuffer
	exited chan struct{}
}

func (p *pod) serve(t testing.TB, role wire.Role, env ...string) *first {
	t.Helper()
	cmd := p.command(t, role, wire.CommandServe)
	cmd.Env = append(cmd.Env, wire.EnvIdleTime+"=0s")
	cmd.Env = append(cmd.Env, env...)
	return startFirst(t, cmd)
}

func startFirst(t testing.TB, cmd *exec.Cmd) *first {
	t.Helper()
	f := &first{cmd: cmd, log: &lockedBuffer{}, exited: make(chan struct{})}
	cmd.Stderr = f.log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM // if the tests are killed, it ends, and all that it has started
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(f.exited) }()
	t.Cleanup(func() {
		killTree(t, cmd.Process.Pid)
		<-f.exited
		if t.Failed() {
			t.Logf("log of PID 1:\n%s", f.log.String())
		}
	})
	return f
}

// code waits for the end and returns the exit code.
func (f *first) code(t testing.TB) int {
	t.Helper()
	select {
	case <-f.exited:
		return f.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.FailNow(t, "PID 1 didn't end", f.log.String())
		return 0
	}
}

func (f *first) running() bool {
	select {
	case <-f.exited:
		return false
	default:
		return true
	}
}

// claim claims the pod and returns what the command printed, and its exit code.
func (p *pod) claim(t testing.TB, role wire.Role, job string) (wire.ClaimResult, int) {
	t.Helper()
	cmd := p.command(t, role, wire.CommandClaim, "--job", job)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	} else if exit.ExitCode() == wire.ExitError {
		require.FailNow(t, "claim failed")
	}
	var result wire.ClaimResult
	require.NoError(t, json.Unmarshal(out, &result))
	require.Equal(t, wire.Protocol, result.Protocol)
	return result, cmd.ProcessState.ExitCode()
}

// claimedPod has both a PID 1 for build and a claim.
func claimedPod(t testing.TB, env ...string) (*pod, *first) {
	t.Helper()
	p := newPod(t)
	f := p.serve(t, wire.Build, env...)
	eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Build)) })
	_, code := p.claim(t, wire.Build, "1")
	require.Equal(t, wire.ExitOK, code)
	return p, f
}

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// alive is true for a process that runs, false for a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return after[0] != 'Z'
}

func (f *first) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, f.cmd.Process.Signal(sig))
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// children are the processes whose parent is pid.
func children(t testing.TB, pid int) []int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var all []int
	for _, name := range names {
		b, _ := os.ReadFile(name) // a thread may have ended
		for field := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(all, child)
		}
	}
	return all
}

// killTree leaves nothing behind of a PID 1 that only stands for one. A process that was stopped can't fork.
func killTree(t testing.TB, pid int) {
	t.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, child := range children(t, pid) {
		killTree(t, child)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
