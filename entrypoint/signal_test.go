//go:build linux

package main

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// A shell as PID 1 takes no notice of what a script sends it; a Go program would end with a dump of its stacks.
func TestSignalsOfAScript(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {}})
	p.claim(t, wire.Build, "1")
	for number := syscall.Signal(1); number < 32; number++ {
		switch number {
		case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH: // by these a node stops containers
			continue
		}
		out, exit := p.script(t, wire.Build, "signal-"+strconv.Itoa(int(number)), "kill -"+strconv.Itoa(int(number))+" 1; sleep 0.05; echo on")
		require.Equal(t, "on\n", out, "%v", number)
		require.Zero(t, exit.Code)
	}
	require.NotContains(t, p.firsts[wire.Build].log.String(), "goroutine")
}

// Images name the signal that stops their containers: SIGQUIT that of nginx, SIGWINCH that of httpd.
func TestStopSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH} {
		t.Run(sig.String(), func(t *testing.T) {
			_, f := claimedPod(t)
			f.signal(t, sig)
			require.Equal(t, wire.ExitStopped, f.code(t))
			require.NotContains(t, f.log.String(), "goroutine")
		})
	}
}

// The init container's user may move what lies in the folder that it made. A job may run as that user, and the helper as root.
func TestRootTakesTheSharedFolder(t *testing.T) {
	needRoot(t)
	p := newPod(t)
	require.NoError(t, os.Mkdir(p.runDir(), 0o777))
	require.NoError(t, os.Chmod(p.runDir(), 0o777|os.ModeSticky))
	require.NoError(t, os.Chown(p.runDir(), 65532, 65532))
	p.serve(t, wire.Helper)
	eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Helper)) })
	info, err := os.Stat(p.runDir())
	require.NoError(t, err)
	require.Zero(t, info.Sys().(*syscall.Stat_t).Uid)
	require.NotZero(t, info.Mode()&os.ModeSticky)
}
