package kube

import (
	"io"
	"strings"
	"sync"
)

// handoff is a pipe whose writes return only when the reader has come back for more, so that its reader, which copies to a
// connection, has sent what was written. With io.Pipe the last line before the process ends could be lost.
type handoff struct {
	data   chan []byte
	taken  chan struct{}
	closed chan struct{}
	once   sync.Once

	rest    []byte // the reader's
	waiting bool   // the reader's: a writer waits for its last byte to be sent
}

func newHandoff() *handoff {
	return &handoff{data: make(chan []byte), taken: make(chan struct{}), closed: make(chan struct{})}
}

func (h *handoff) write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	select {
	case h.data <- p:
	case <-h.closed:
		return 0, io.ErrClosedPipe
	}
	select {
	case <-h.taken:
		return len(p), nil
	case <-h.closed:
		return 0, io.ErrClosedPipe
	}
}

// Read is called by one goroutine.
func (h *handoff) Read(p []byte) (int, error) {
	if len(h.rest) == 0 {
		if h.waiting {
			h.waiting = false
			select {
			case h.taken <- struct{}{}:
			case <-h.closed:
				return 0, io.EOF
			}
		}
		select {
		case h.rest = <-h.data:
			h.waiting = true
		case <-h.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

func (h *handoff) close() { h.once.Do(func() { close(h.closed) }) }

// tail keeps the end of what is written to it: enough for the message of a command that fails.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailLength = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if len(t.end) > tailLength {
		t.end = append([]byte(nil), t.end[len(t.end)-tailLength:]...)
	}
	return len(p), nil
}

// text is what was kept, on one line.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.end)), " ")
}
