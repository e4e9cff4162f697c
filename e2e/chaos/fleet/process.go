package fleet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Command is how a manager is started: the program `idlecount run` with a configuration.
type Command struct {
	Program, Config, Kubeconfig, LeaseNamespace string
	ListenAddress                               string   // of metrics and probes; "" = none
	Environ                                     []string // besides what each gets
}

// Process is a manager that runs, or has run.
type Process struct {
	cmd   *exec.Cmd
	log   log
	ended chan struct{}
}

// Start starts a manager. Whoever starts it calls Stop or Kill.
func (c Command) Start() (*Process, error) {
	p := &Process{ended: make(chan struct{})}
	p.cmd = exec.Command(c.Program, "run", "--config", c.Config, "--kubeconfig", c.Kubeconfig,
		"--leader-elect-namespace", c.LeaseNamespace, "--listen-address", c.ListenAddress)
	p.cmd.Stderr = &p.log
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, c.Environ...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a manager: %w", err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended doesn't matter: its log is shown where something went wrong
		close(p.ended)
	}()
	return p, nil
}

// Stop tells the manager to end, and waits.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the manager without a chance to finish anything, and waits.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Freeze has the manager stand still, as on a machine that is paused; Thaw has it go on.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw has a manager go on that stands still.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *Process) end(signal os.Signal) {
	if !p.Ended() {
		_ = p.cmd.Process.Signal(signal) // it may end by itself at this moment
	}
	<-p.ended
}

// Ended says whether the process is over.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Leads says whether this manager has led.
func (p *Process) Leads() bool { return strings.Contains(p.Log(), "this manager leads") }

// Log is what the manager has logged.
func (p *Process) Log() string { return p.log.String() }

// log is written by the process and read at the same time.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
