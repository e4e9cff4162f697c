package clustertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/cluster"
)

// ours are locks that no other test uses.
func ours() passage { return passage{lock: "selftest", gate: "selftest-gate"} }

// holderVariable makes TestHelperHolder a process that holds the lock: "shared" or "exclusive".
const holderVariable = "IDLECOUNT_HELPER_HOLDER"

func TestHelperHolder(t *testing.T) {
	mode := os.Getenv(holderVariable)
	if mode == "" {
		t.Skip("only run by other tests")
	}
	release, err := ours().pass(t.Context(), mode == "exclusive", func() { fmt.Fprintln(os.Stderr, "waiting") })
	require.NoError(t, err)
	fmt.Fprintln(os.Stderr, "held")
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
	release()
}

// holder is another process on its way to the lock.
type holder struct {
	lines *bufio.Scanner
	stdin io.Closer
	cmd   *exec.Cmd
}

func startHolder(t *testing.T, mode string) holder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the locks lie in a folder of root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperHolder$")
	cmd.Env = append(os.Environ(), holderVariable+"="+mode)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h := holder{lines: bufio.NewScanner(stderr), stdin: stdin, cmd: cmd}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it was not released
		_ = cmd.Wait()
	})
	return h
}

func (h holder) says(t *testing.T, want string) {
	t.Helper()
	require.True(t, h.lines.Scan(), h.lines.Err())
	require.Equal(t, want, h.lines.Text())
}

func (h holder) release(t *testing.T) {
	t.Helper()
	require.NoError(t, h.stdin.Close())
	require.NoError(t, h.cmd.Wait())
}

var errImpatient = errors.New("impatient")

// try passes if that is possible within moments.
func try(t *testing.T, exclusive bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errImpatient)
	defer cancel()
	release, err := ours().pass(ctx, exclusive, nil)
	if err == nil {
		release()
	}
	return err
}

func TestManyShareTheClusterAndOneBreaksIt(t *testing.T) {
	user := startHolder(t, "shared")
	user.says(t, "held")
	require.NoError(t, try(t, false))
	require.ErrorIs(t, try(t, true), errImpatient)
	user.release(t)
	require.NoError(t, try(t, true))

	breaker := startHolder(t, "exclusive")
	breaker.says(t, "held")
	require.ErrorIs(t, try(t, false), errImpatient)
	require.ErrorIs(t, try(t, true), errImpatient)
	breaker.release(t)
	require.NoError(t, try(t, false))
}

func TestWhoWaitsAloneIsNotOvertaken(t *testing.T) {
	user := startHolder(t, "shared")
	user.says(t, "held")
	breaker := startHolder(t, "exclusive")
	breaker.says(t, "waiting")
	require.ErrorIs(t, try(t, false), errImpatient, "who comes later waits behind it")

	t.Run("but a process that has the lock is let through, or both would wait for ever", func(t *testing.T) {
		release, err := cluster.Lock(t.Context(), ours().lock, false, nil)
		require.NoError(t, err)
		defer release()
		require.NoError(t, try(t, false))
	})
	user.release(t)
	breaker.says(t, "held")
	breaker.release(t)
	require.NoError(t, try(t, false))
}

func TestWhoWouldWaitForItselfIsToldSo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the locks lie in a folder of root")
	}
	release, err := ours().pass(t.Context(), false, nil)
	require.NoError(t, err)
	defer release()
	require.ErrorIs(t, try(t, true), errSelf)
}

func TestALockEndsWithItsProcess(t *testing.T) {
	breaker := startHolder(t, "exclusive")
	breaker.says(t, "held")
	require.NoError(t, breaker.cmd.Process.Kill())
	_ = breaker.cmd.Wait()
	require.NoError(t, try(t, false))
}
