package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0"
	for name, c := range map[string]struct {
		stat      string
		wantState byte
		wantTicks uint64
		wantErr   bool
	}{
		"a plain name":        {stat: "12 (sleep)" + tail, wantState: 'S', wantTicks: 98765},
		"a name with a space": {stat: "12 (tmux: server)" + tail, wantState: 'S', wantTicks: 98765},
		"a name that looks like the end of the one": {stat: "12 (a) Z 1 (b)" + tail, wantState: 'S', wantTicks: 98765},
		"no name":                        {stat: "12 sleep S 1", wantErr: true},
		"too few fields":                 {stat: "12 (sleep) S 1 2 3", wantErr: true},
		"a start time that is no number": {stat: "12 (sleep) S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 soon 0", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			state, ticks, err := parseStat([]byte(c.stat))
			if c.wantErr {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.wantState, state)
			require.Equal(t, c.wantTicks, ticks)
		})
	}
}

func TestOfKnowsThisProcess(t *testing.T) {
	id, err := Of(os.Getpid())
	require.NoError(t, err)
	require.True(t, id.Alive())
	again, err := Of(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, id, again)
	require.WithinDuration(t, time.Now(), id.Started(), 10*time.Minute)
}

func TestAnIdentityThatDoesNotMatchIsNeverSignalled(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	real, err := Of(cmd.Process.Pid)
	require.NoError(t, err)

	for name, stale := range map[string]Identity{
		"another start time: the pid was reused":  {PID: real.PID, StartTicks: real.StartTicks - 1, Boot: real.Boot},
		"another boot: the machine was restarted": {PID: real.PID, StartTicks: real.StartTicks, Boot: "b00t"},
		"no identity at all":                      {},
		"a negative pid would be a process group": {PID: -real.PID, StartTicks: real.StartTicks, Boot: real.Boot},
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, stale.Alive())
			require.ErrorIs(t, stale.Signal(syscall.SIGKILL), os.ErrProcessDone)
			require.NoError(t, stale.Kill(t.Context()))
			require.NoError(t, stale.Stop(t.Context(), time.Minute))
			require.NoError(t, stale.Wait(t.Context()))
			require.True(t, real.Alive(), "the process that has the pid now must not be touched")
		})
	}
}

func TestStartedProcessHasASessionALogAndOnlyTheGivenEnvironment(t *testing.T) {
	t.Setenv("IDLECOUNT_SECRET", "of the caller")
	log := filepath.Join(t.TempDir(), "logs", "it.log")
	id, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "env; echo oops >&2; exec sleep 60"}, Env: []string{"GIVEN=1"}, Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = id.Kill(context.Background()) })

	session, err := unix.Getsid(id.PID)
	require.NoError(t, err)
	require.Equal(t, id.PID, session, "the caller's terminal must not reach it")
	require.Eventually(t, func() bool { return Name(id.PID) == "sleep" }, 10*time.Second, 5*time.Millisecond)
	content, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(content), "GIVEN=1")
	require.Contains(t, string(content), "oops")
	require.NotContains(t, string(content), "IDLECOUNT_SECRET")
}

func TestStopKillsWhatIgnoresTerm(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	id, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"}, Log: log, Env: []string{"PATH=/usr/bin:/bin"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(log)
		return string(content) == "ready\n"
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, id.Stop(t.Context(), 100*time.Millisecond))
	require.False(t, id.Alive())
}

func TestWaitEndsWithItsContext(t *testing.T) {
	id, err := Of(os.Getpid())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, id.Wait(ctx), context.Canceled)
}

func TestAZombieCountsAsGone(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // until then it is a zombie
	require.Eventually(t, func() bool {
		_, state, err := read(cmd.Process.Pid)
		return err == nil && state == 'Z'
	}, 10*time.Second, 5*time.Millisecond)
	_, err := Of(cmd.Process.Pid)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestALargeLogIsPutAsideAtTheNextStart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, nil, 0o644))
	require.NoError(t, os.Truncate(log, logLimit+1))
	id, err := Start(Command{Path: "/bin/echo", Args: []string{"new"}, Log: log})
	require.NoError(t, err)
	require.NoError(t, id.Wait(t.Context()))
	content, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "new\n", string(content))
	require.FileExists(t, log+".old")
}

func TestStartNamesAProgramThatIsMissing(t *testing.T) {
	_, err := Start(Command{Path: "/no/such/program", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "/no/such/program")
}

func TestBelowFolderFindsProcessesByTheirProgram(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "bin", "sleep")
	copyFile(t, "/bin/sleep", program)
	id, err := Start(Command{Path: program, Args: []string{"60"}, Log: filepath.Join(folder, "log")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = id.Kill(context.Background()) })
	// A folder whose name only begins the same is another one.
	none, err := BelowFolder(filepath.Join(folder, "b"))
	require.NoError(t, err)
	require.Empty(t, none)

	require.NoError(t, os.Remove(program), "a program that was deleted meanwhile must be found too")
	found, err := BelowFolder(filepath.Join(folder, "bin"))
	require.NoError(t, err)
	require.Equal(t, []Identity{id}, found)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	source, err := os.Open(from)
	require.NoError(t, err)
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(target, source)
	require.NoError(t, err)
	require.NoError(t, target.Close())
}

func TestWhatAProcessHadIsFreeOnceItWasKilled(t *testing.T) {
	if os.Getenv(listenerVariable) != "" {
		listenForEver(t)
		return
	}
	for range 8 {
		log := filepath.Join(t.TempDir(), "log")
		id, err := Start(Command{Path: os.Args[0], Args: []string{"-test.run=^" + t.Name() + "$"}, Env: []string{listenerVariable + "=1"}, Log: log})
		require.NoError(t, err)
		var address string
		require.Eventually(t, func() bool {
			content, _ := os.ReadFile(log)
			address = strings.TrimSpace(string(content))
			return strings.HasSuffix(string(content), "\n")
		}, 10*time.Second, 5*time.Millisecond)
		require.NoError(t, id.Kill(t.Context()))
		connection, err := net.Dial("tcp", address)
		if err == nil {
			require.NoError(t, connection.Close())
		}
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "the next process could not listen there")
	}
}

// listenerVariable makes a process that has threads and memory, which take their time to end, and a listener.
const listenerVariable = "IDLECOUNT_HELPER_LISTENER"

func listenForEver(t *testing.T) {
	t.Helper()
	for range 50 {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	memory := make([]byte, 100<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fmt.Println(listener.Addr())
	// Not a channel that nobody writes to: the Go runtime would call that a deadlock where nothing else is going on.
	connection, err := listener.Accept()
	t.Fatalf("nobody was expected: %v, %v", connection, err)
	runtime.KeepAlive(memory)
}
