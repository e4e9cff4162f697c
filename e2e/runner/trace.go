package runner

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// trace is the job log: kept whole, and passed on as it comes.
type trace struct {
	mu    sync.Mutex
	log   bytes.Buffer
	first time.Time // when the first byte since mark came
	live  io.Writer // may be nil
}

// Write is called by both streams of the driver at once.
func (t *trace) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first.IsZero() && len(p) > 0 {
		t.first = time.Now()
	}
	t.log.Write(p)
	if t.live != nil {
		// A reader that is gone must not fail the job: GitLab Runner goes on without its server, too.
		_, _ = t.live.Write(p)
	}
	return len(p), nil
}

// say writes a line of the runner itself.
func (t *trace) say(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// mark begins a call: it returns the log's length, and forgets the first byte.
func (t *trace) mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first = time.Time{}
	return t.log.Len()
}

// taken is the log's length and when the first byte since mark came.
func (t *trace) taken() (int, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.Len(), t.first
}

// stream is one output of the driver. Each has a pipe of its own, so that os/exec must not see the same writer twice.
type stream struct{ to io.Writer }

func (s *stream) Write(p []byte) (int, error) { return s.to.Write(p) }
