package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/runner"
)

// runWhile runs a job, and do as soon as the job's log has a text. do may cancel the job; where it fails, the job is
// aborted and the test ends.
func (s *site) runWhile(job runner.Job, text string, do func(cancel context.CancelCauseFunc) error) runner.Result {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(s.t.Context())
	defer cancel(nil)
	log := watchFor(text)
	ended := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		select {
		case <-log.done:
		case <-ended:
			done <- fmt.Errorf("the job ended before its log had %q", text)
			return
		}
		err := do(cancel)
		if err != nil {
			cancel(runner.ErrAborted)
		}
		done <- err
	}()
	result := s.runner.Run(ctx, job, log)
	close(ended)
	s.t.Logf("job log:\n%s", shorten(result.Log))
	require.NoError(s.t, <-done)
	return result
}

// seen is a log that tells when a text has come by.
type seen struct {
	text string
	mu   sync.Mutex
	buf  strings.Builder
	done chan struct{}
}

func watchFor(text string) *seen { return &seen{text: text, done: make(chan struct{})} }

func (w *seen) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.done:
		return len(p), nil
	default:
	}
	w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.text) {
		close(w.done)
	}
	return len(p), nil
}
