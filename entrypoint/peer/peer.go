//go:build linux

// Package peer is the way between the commands of the entrypoint in a container and its PID 1: a unix socket, a first
// line that says what is wanted, and the check that both ends are in the same container. The sockets lie in a folder that
// the containers of a pod share; nobody outside a container may command its PID 1, or pose as it. All that a PID 1 tells
// the other container is where it listens for the driver.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// Listen listens on the socket of a role. What an earlier PID 1 left is replaced.
func Listen(runDir string, role wire.Role) (*net.UnixListener, error) {
	path := wire.Socket(runDir, role)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// The other container, maybe another user, connects to make this one look at the claim (see Poke).
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Dial connects to the PID 1 of this container. It waits until ctx ends for one that doesn't listen yet: a container
// is Ready some milliseconds before that.
func Dial(ctx context.Context, runDir string, role wire.Role) (*net.UnixConn, error) {
	conn, err := dial(ctx, runDir, role)
	if err != nil {
		return nil, err
	}
	if err := Check(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is served by somebody else: %w", wire.Socket(runDir, role), err), conn.Close())
	}
	return conn, nil
}

func dial(ctx context.Context, runDir string, role wire.Role) (*net.UnixConn, error) {
	pause := time.Millisecond
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: wire.Socket(runDir, role), Net: "unix"})
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("reach PID 1: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("reach PID 1, which doesn't listen: %w", err)
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

// Stream asks the PID 1 of a role where it listens for the driver that claimed the pod, and makes it look at the claim file
// first. The answer is empty where it listens nowhere. That of another container comes unasked, and can be believed as long
// as the pod has run nothing of a job.
func Stream(ctx context.Context, runDir string, role wire.Role) (wire.Stream, error) {
	conn, err := dial(ctx, runDir, role)
	if err != nil {
		return wire.Stream{}, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return wire.Stream{}, err
		}
	}
	if Check(conn) == nil {
		if err := json.NewEncoder(conn).Encode(wire.Request{Command: wire.RequestStream}); err != nil {
			return wire.Stream{}, fmt.Errorf("ask PID 1 of %s where it listens: %w", role, err)
		}
	}
	var stream wire.Stream
	if err := json.NewDecoder(io.LimitReader(conn, 1024)).Decode(&stream); err != nil {
		return wire.Stream{}, fmt.Errorf("ask PID 1 of %s where it listens: %w", role, err)
	}
	return stream, nil
}

// Poke makes the PID 1s of the pod look at the claim file now. One that can't be reached looks when its timer ends.
func Poke(runDir string, roles ...wire.Role) {
	for _, role := range roles {
		if conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: wire.Socket(runDir, role), Net: "unix"}); err == nil {
			conn.Close()
		}
	}
}

// Check is nil where the process at the other end is in this container: it has a number in our PID namespace, and is ours
// or root's.
func Check(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("ask who the peer is: %w", credErr)
	}
	return judge(*cred, os.Geteuid())
}

func judge(peer unix.Ucred, uid int) error {
	switch {
	case peer.Pid <= 0:
		return errors.New("the peer is in another container")
	case peer.Uid != 0 && int(peer.Uid) != uid:
		return fmt.Errorf("the peer runs as user %d, we as %d", peer.Uid, uid)
	}
	return nil
}
