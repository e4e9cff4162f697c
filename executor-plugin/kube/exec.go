package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// Open opens a stream to a command in a container of a pod: what is written is the command's stdin, what is read is its
// stdout. It returns at once; what goes wrong comes out of Read, which ends with io.EOF where the command ended well. It is
// the one place that knows how a container is reached.
func (c *Client) Open(ctx context.Context, pod, container string, command ...string) (io.ReadWriteCloser, error) {
	target := c.rest.Get().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("exec").URL()
	target.RawQuery = url.Values{
		"container": {container}, "command": command, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	executor, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, target.String())
	if err != nil {
		return nil, fmt.Errorf("open a stream to container %s of pod %s/%s: %w", container, c.namespace, pod, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stdout, output := io.Pipe()
	s := &stream{PipeReader: stdout, input: newHandoff(), cancel: cancel}
	go func() {
		var stderr tail
		options := remotecommand.StreamOptions{Stdin: s.input, Stdout: output, Stderr: &stderr}
		err := executor.StreamWithContext(ctx, options)
		if needsSPDY(err) { // nothing was read or written yet
			err = c.overSPDY(ctx, target, options)
		}
		s.input.close()
		_ = output.CloseWithError(c.outcome(err, command, stderr.text()))
	}()
	return s, nil
}

func (c *Client) overSPDY(ctx context.Context, target *url.URL, options remotecommand.StreamOptions) error {
	executor, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, target)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, options)
}

// needsSPDY is true where something between here and the kubelet may not speak WebSocket, or where the runner may only
// create an exec and not get one, as a WebSocket does. Only a pod that isn't there is the same to both.
func needsSPDY(err error) bool {
	upgrade, ok := errors.AsType[*httpstream.UpgradeFailureError](err)
	return ok && !apierrors.IsNotFound(upgrade.Cause) || httpstream.IsHTTPSProxyError(err)
}

// ExitError is a command that ended with another exit code than 0.
type ExitError struct {
	Command string
	Code    int
	Stderr  string // the end of it
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s ended with exit code %d", e.Command, e.Code)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// StartError is a command that the container's runtime could not start, though the container was there to be asked.
type StartError struct {
	Command string
	Reason  string
	Missing bool // the program isn't in the container, or can't be run there
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s can't be started: %s", e.Command, e.Reason)
}

// startError reads the word of a runtime, which comes over the stream as text. What stands before the runtime's own is that
// of the server that all runtimes use (k8s.io/kubelet, pkg/cri/streaming/remotecommand).
func startError(err error, program string) (*StartError, bool) {
	_, reason, ok := strings.Cut(err.Error(), "error executing command in container: ")
	if !ok {
		return nil, false
	}
	_, after, ok := strings.Cut(reason, "unable to start container process: ") // runc
	if ok {
		reason = after
	}
	words := strings.ToLower(reason)
	missing := strings.Contains(words, "no such file or directory") || strings.Contains(words, "permission denied") ||
		strings.Contains(words, "executable file not found") || strings.Contains(words, "exec format error")
	return &StartError{Command: program, Reason: reason, Missing: missing && strings.Contains(reason, program)}, true
}

// outcome is what Read ends with.
func (c *Client) outcome(err error, command []string, stderr string) error {
	if err == nil {
		return io.EOF
	}
	if exit, ok := errors.AsType[exec.CodeExitError](err); ok {
		return &ExitError{Command: strings.Join(command[:min(2, len(command))], " "), Code: exit.Code, Stderr: stderr}
	}
	if upgrade, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
		err = upgrade.Cause
	} else if start, ok := startError(err, command[0]); ok {
		return start
	}
	if denied(err, "get") || denied(err, "create") {
		return fmt.Errorf("the service account of the runner may not exec into pods of namespace %s (pods/exec: create and get); the Role that `idlecount manifests` prints lets it: %w",
			c.namespace, err)
	}
	return err
}

// stream is one command.
type stream struct {
	*io.PipeReader
	input  *handoff
	cancel context.CancelFunc
}

// Write returns when the bytes are on their way to the API server.
func (s *stream) Write(p []byte) (int, error) { return s.input.write(p) }

// Close ends the connection and all that waits on it.
func (s *stream) Close() error {
	s.cancel()
	s.input.close()
	return s.PipeReader.Close()
}
