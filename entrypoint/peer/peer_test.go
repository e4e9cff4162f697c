//go:build linux

package peer

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		peer unix.Ucred
		uid  int
		fail string
	}{
		"the same user":                    {unix.Ucred{Pid: 5, Uid: 1000}, 1000, ""},
		"root":                             {unix.Ucred{Pid: 5}, 1000, ""},
		"another user":                     {unix.Ucred{Pid: 5, Uid: 1001}, 1000, "runs as user 1001"},
		"a process of another container":   {unix.Ucred{Pid: 0, Uid: 1000}, 1000, "another container"},
		"root in another container":        {unix.Ucred{Pid: 0}, 0, "another container"},
		"somebody else, where we are root": {unix.Ucred{Pid: 5, Uid: 1000}, 0, "runs as user 1000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := judge(c.peer, c.uid)
			if c.fail == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fail)
			}
		})
	}
}

// An exec may come before PID 1 listens: the container is Ready earlier.
func TestDialWaitsForTheListener(t *testing.T) {
	dir := t.TempDir()
	dialed := make(chan error, 1)
	go func() {
		conn, err := Dial(t.Context(), dir, wire.Build)
		if err == nil {
			conn.Close()
		}
		dialed <- err
	}()
	// What a PID 1 that was killed has left refuses connections.
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: wire.Socket(dir, wire.Build), Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false)
	require.NoError(t, old.Close())
	select {
	case err := <-dialed:
		// It may have been faster than the Close above.
		require.NoError(t, err)
		return
	default:
	}
	listener, err := Listen(dir, wire.Build)
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, <-dialed)
}

func TestDialGivesUp(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err := Dial(ctx, t.TempDir(), wire.Build)
	require.ErrorContains(t, err, "PID 1, which doesn't listen")
}

func TestTheSocketIsForEverybody(t *testing.T) {
	dir := t.TempDir()
	listener, err := Listen(dir, wire.Helper)
	require.NoError(t, err)
	defer listener.Close()
	info, err := os.Stat(filepath.Join(dir, "helper.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm())
}
