package proxy

import (
	"io"
	"sync"
	"time"
)

// delayed is a stream whose bytes come late, in order. It goes on reading while it waits: who is slow to show what happened
// has still heard of it.
type delayed struct {
	body   io.ReadCloser
	pieces chan piece
	closed chan struct{}
	close  sync.Once
	rest   []byte
}

type piece struct {
	data []byte
	due  time.Time
	err  error
}

// queued bounds the pieces on their way; beyond it the stream is no longer read ahead.
const queued = 10000

func delay(body io.ReadCloser, lag func() time.Duration) *delayed {
	d := &delayed{body: body, pieces: make(chan piece, queued), closed: make(chan struct{})}
	go func() {
		for {
			data := make([]byte, 32<<10)
			n, err := body.Read(data)
			select {
			case d.pieces <- piece{data[:n], time.Now().Add(lag()), err}:
			case <-d.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *delayed) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		select {
		case next := <-d.pieces:
			if !d.wait(next.due) {
				return 0, io.ErrClosedPipe
			}
			d.rest = next.data
			if len(d.rest) == 0 && next.err != nil {
				return 0, next.err
			}
			if next.err != nil { // after what came with it
				d.pieces = make(chan piece, 1)
				d.pieces <- piece{err: next.err}
			}
		case <-d.closed:
			return 0, io.ErrClosedPipe
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// wait returns at a time, or with false when the stream was closed before.
func (d *delayed) wait(due time.Time) bool {
	select {
	case <-time.After(time.Until(due)):
		return true
	case <-d.closed:
		return false
	}
}

func (d *delayed) Close() error {
	d.close.Do(func() { close(d.closed) })
	return d.body.Close()
}
