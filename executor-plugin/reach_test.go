package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// ends are what a reach opens, and how often it was told to forget the door.
type ends struct {
	ports, execs, forgets int
	pid1                  func(conn net.Conn) // the other end of a port-forward; nil = it doesn't stand
}

var errNoForward = errors.New("no port-forward today")

// newReach is one to a PID 1 with a key; the driver's is in it.
func newReach(t *testing.T, pid1 ed25519.PublicKey) (*reach, *ends) {
	t.Helper()
	key, err := proof.NewKey()
	require.NoError(t, err)
	e := &ends{}
	return &reach{
		role: wire.Build, run: "a",
		doors: doors{key, map[wire.Role]wire.Stream{wire.Build: {Port: 40001, Key: proof.Text(pid1)}}},
		byPort: func(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
			require.EqualValues(t, 40001, port)
			if e.ports++; e.pid1 == nil {
				return nil, errNoForward
			}
			here, there := net.Pipe()
			go e.pid1(there)
			return here, nil
		},
		byExec: func(context.Context) (io.ReadWriteCloser, error) { e.execs++; return nil, nil },
		forget: func() { e.forgets++ },
	}, e
}

// answering is a PID 1 that takes the request and says so many bytes before it hangs up.
func answering(t *testing.T, own ed25519.PrivateKey, r *reach, bytes int) func(conn net.Conn) {
	return func(conn net.Conn) {
		defer conn.Close()
		var request wire.Request
		if err := proof.PID1(conn, own, proof.Public(r.doors.key)); err != nil {
			t.Error(err)
			return
		}
		line, err := bufio.NewReader(conn).ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &request) != nil || request != (wire.Request{Command: wire.CommandRun, ID: "a"}) {
			t.Errorf("a request for script a is wanted, there was %q, %v", line, err)
		}
		_, _ = conn.Write(make([]byte, bytes))
	}
}

func TestWhichWayAScriptIsReached(t *testing.T) {
	pid1, err := proof.NewKey()
	require.NoError(t, err)
	other, err := proof.NewKey()
	require.NoError(t, err)
	// use opens a stream, reads it to its end, as often as told.
	use := func(t *testing.T, r *reach, times int) {
		t.Helper()
		for range times {
			conn, err := r.open(t.Context())
			require.NoError(t, err)
			if conn != nil {
				_, _ = io.Copy(io.Discard, conn)
				require.NoError(t, conn.Close())
			}
		}
	}
	cases := map[string]struct {
		set  func(t *testing.T, r *reach, e *ends)
		want ends // after three connections
	}{
		"it works, and breaks": {func(t *testing.T, r *reach, e *ends) { e.pid1 = answering(t, pid1, r, 5) }, ends{ports: 3}},
		"it stands, and nothing comes": {
			func(t *testing.T, r *reach, e *ends) { e.pid1 = answering(t, pid1, r, 0) }, ends{ports: 1, execs: 2, forgets: 1},
		},
		"it doesn't stand": {func(*testing.T, *reach, *ends) {}, ends{ports: 1, execs: 3, forgets: 1}},
		"somebody else listens": {
			func(_ *testing.T, r *reach, e *ends) {
				e.pid1 = func(conn net.Conn) { _ = proof.PID1(conn, other, proof.Public(r.doors.key)); _ = conn.Close() }
			}, ends{ports: 1, execs: 3, forgets: 1},
		},
		"nobody says a word": {
			func(_ *testing.T, _ *reach, e *ends) {
				e.pid1 = func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
			}, ends{ports: 1, execs: 3, forgets: 1},
		},
		"the key is none":         {func(_ *testing.T, r *reach, _ *ends) { r.doors.streams[wire.Build] = wire.Stream{Port: 1, Key: "x"} }, ends{execs: 3, forgets: 1}},
		"the other container's":   {func(_ *testing.T, r *reach, _ *ends) { r.role = wire.Helper }, ends{execs: 3}},
		"there is no door at all": {func(_ *testing.T, r *reach, _ *ends) { r.doors = doors{} }, ends{execs: 3}},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e := newReach(t, proof.Public(pid1))
				c.set(t, r, e)
				use(t, r, 3)
				e.pid1 = nil
				require.Equal(t, c.want, *e)
			})
		})
	}
}

// A stage that is stopped doesn't go on to an exec.
func TestAStopWhileADoorIsTried(t *testing.T) {
	pid1, err := proof.NewKey()
	require.NoError(t, err)
	r, e := newReach(t, proof.Public(pid1))
	ctx, stop := context.WithCancelCause(t.Context())
	e.pid1 = func(net.Conn) { stop(errStopped) }
	_, err = r.open(ctx)
	require.ErrorIs(t, err, errStopped)
	require.Equal(t, 1, e.ports)
	require.Zero(t, e.execs+e.forgets)
}
