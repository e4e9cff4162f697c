package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// doors are where a job's containers can be entered without an exec, and the key that opens them. The zero value is none.
type doors struct {
	key     ed25519.PrivateKey
	streams map[wire.Role]wire.Stream
}

// reach is how one script's container is reached, again and again. By port-forward where that works: an exec makes the
// container runtime start a process, which takes several times as long. By exec where it doesn't: that always works.
type reach struct {
	byPort func(ctx context.Context, port uint16) (io.ReadWriteCloser, error)
	byExec func(ctx context.Context) (io.ReadWriteCloser, error)
	role   wire.Role
	run    string // the script's id
	doors  doors
	forget func() // makes the later parts of the job not try a door that didn't open

	shut bool   // by exec from now on
	last *heard // the connection by port-forward before this one
}

// forwardTimeout is how long a port-forward may take to stand, and to be proven: exec is always there.
const forwardTimeout = 2 * time.Second

// open makes a connection to `entrypoint run`, or what is the same to PID 1. It is called by one goroutine.
func (r *reach) open(ctx context.Context) (io.ReadWriteCloser, error) {
	if r.last != nil && !r.last.something.Load() {
		r.shutDoor() // it stood, and then nothing came through it
	}
	r.last = nil
	stream, ok := r.doors.streams[r.role]
	if ok && !r.shut {
		conn, err := r.forward(ctx, stream)
		if err == nil {
			r.last = &heard{ReadWriteCloser: conn}
			return r.last, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		r.shutDoor()
	}
	return r.byExec(ctx)
}

func (r *reach) shutDoor() {
	if !r.shut {
		r.shut = true
		r.forget()
	}
}

// forward goes through a door.
func (r *reach) forward(ctx context.Context, to wire.Stream) (io.ReadWriteCloser, error) {
	pid1, err := proof.Parse(to.Key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	conn, err := r.byPort(ctx, to.Port)
	if err != nil {
		return nil, err
	}
	inTime := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = proof.Driver(conn, r.doors.key, pid1)
	if err == nil {
		err = json.NewEncoder(conn).Encode(wire.Request{Command: wire.CommandRun, ID: r.run})
	}
	if !inTime() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enter container %s by port-forward: %w", r.role, err), conn.Close())
	}
	return conn, nil
}

// heard is a connection that knows whether anything ever came.
type heard struct {
	io.ReadWriteCloser
	something atomic.Bool
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadWriteCloser.Read(p)
	if n > 0 {
		h.something.Store(true)
	}
	return n, err
}
