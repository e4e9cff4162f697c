package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"
)

// manager is an `idlecount run` of a test.
type manager struct {
	cmd   *exec.Cmd
	log   *syncBuffer
	ended chan struct{}
}

// startManager starts a manager for the site's config.toml. It ends with the test; no pod is touched by that.
func (s *site) startManager() *manager {
	s.t.Helper()
	m := &manager{log: &syncBuffer{}, ended: make(chan struct{})}
	m.cmd = exec.Command(s.binaries.Idlecount, "run", "--config", s.config, "--kubeconfig", s.kubeconfig,
		"--leader-elect-namespace", s.namespace, "--listen-address", "")
	m.cmd.Stderr = m.log
	m.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	require.NoError(s.t, m.cmd.Start())
	go func() {
		_ = m.cmd.Wait()
		close(m.ended)
	}()
	s.t.Cleanup(func() {
		m.stop(syscall.SIGTERM)
		if s.t.Failed() {
			s.t.Logf("the manager's log:\n%s", shorten([]byte(m.log.String())))
		}
	})
	return m
}

// stop sends a signal and waits for the end of the process.
func (m *manager) stop(signal os.Signal) {
	select {
	case <-m.ended:
		return
	default:
	}
	_ = m.cmd.Process.Signal(signal)
	<-m.ended
}

// syncBuffer is a buffer that is written and read at the same time.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
