package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The exit codes that drivers are told to use.
const (
	buildFailureCode  = 1
	systemFailureCode = 2
)

// command is one process of the driver.
type command struct {
	path, dir       string
	args, env       []string
	stdout, stderr  io.Writer
	exitCodeFile    string
	graceful, force time.Duration
	started         func(pid int)
}

// run starts the driver as the leader of a process group and waits for it. When ctx ends, the whole group gets SIGTERM, and
// after the graceful time SIGKILL. It returns the driver's exit code (-1 where there is none) and what GitLab Runner makes of it.
func (c command) run(ctx context.Context) (int, error) {
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout, cmd.Stderr = &stream{c.stdout}, &stream{c.stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return -1, fmt.Errorf("failed to start command: %w", err)
	}
	c.started(cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return c.result(cmd, err)
	case <-ctx.Done():
	}
	// The group may be gone already; then there is nothing to signal, and Wait returns.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	select {
	case err := <-ended:
		return c.result(cmd, err)
	case <-time.After(c.graceful):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	select {
	case err := <-ended:
		return c.result(cmd, err)
	case <-time.After(c.force):
		return -1, errors.New("failed to kill process, likely process is dormant")
	}
}

// result reads the driver's answer.
func (c command) result(cmd *exec.Cmd, err error) (int, error) {
	code := cmd.ProcessState.ExitCode()
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case !isExit:
		return code, err
	case code == buildFailureCode:
		return code, c.buildFailure(exit)
	case code == systemFailureCode:
		return code, err
	default:
		return code, &unknownExit{code, err}
	}
}

// buildFailure reads the script's own exit code, where the driver wrote one.
func (c command) buildFailure(exit *exec.ExitError) error {
	file, err := os.Open(c.exitCodeFile)
	if err != nil {
		return &buildError{buildFailureCode, exit}
	}
	defer func() { _ = file.Close() }()
	line, err := bufio.NewReader(file).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return &unknownExit{systemFailureCode, err}
	}
	code, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
	if err != nil {
		return &unknownExit{systemFailureCode, exit}
	}
	return &buildError{code, fmt.Errorf("exit status %d", code)}
}
