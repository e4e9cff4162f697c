package stream_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/stream"
)

// container is a PID 1 of a container, the real program, on this machine.
type container struct {
	binary, dir string
}

func newContainer(t *testing.T) container {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the entrypoint")
	}
	// The path of a socket is short: t.TempDir's may be too long.
	dir, err := os.MkdirTemp("", "pid1") //nolint:usetesting // as said
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := container{binary: filepath.Join(dir, "entrypoint"), dir: filepath.Join(dir, "shared")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.binary, "idlecount.dev/idlecount/entrypoint")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	c.must(t, wire.CommandInstall)
	serve := c.command(t.Context(), wire.CommandServe)
	var log bytes.Buffer
	serve.Stdout, serve.Stderr = &log, &log
	require.NoError(t, serve.Start())
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		_ = serve.Wait()
		if t.Failed() {
			t.Logf("PID 1 said:\n%s", log.String())
		}
	})
	c.must(t, wire.CommandClaim, "--job", "1")
	return c
}

func (c container) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{name, "--dir", c.dir}, args...)...)
	cmd.Env = append(os.Environ(), wire.EnvRole+"=build", wire.EnvIdleTime+"=0s", wire.EnvAbandonTime+"=10m")
	return cmd
}

func (c container) must(t *testing.T, name string, args ...string) {
	t.Helper()
	if name == wire.CommandInstall {
		require.NoError(t, os.Mkdir(c.dir, 0o777))
	}
	out, err := c.command(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// open is an exec of `entrypoint run`.
func (c container) open(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	cmd := c.command(ctx, wire.CommandRun, "--id", id)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{Reader: stdout, Writer: stdin, cmd: cmd}, nil
}

type process struct {
	io.Reader
	io.Writer
	cmd  *exec.Cmd
	once sync.Once
}

func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return nil
}

// cut is a connection that breaks after so many bytes, in whichever direction comes first; what is under way is lost.
type cut struct {
	io.ReadWriteCloser
	mu          sync.Mutex
	read, write int
}

func (c *cut) take(left *int, n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, *left)
	*left -= n
	if *left == 0 {
		_ = c.Close()
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err != nil {
		return n, err
	}
	return c.take(&c.read, n)
}

func (c *cut) Write(p []byte) (int, error) {
	n, broken := c.take(&c.write, len(p))
	if n > 0 {
		if _, err := c.ReadWriteCloser.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return n, broken
}

func options(out io.Writer, open stream.Opener) stream.Options {
	timing := stream.DefaultTiming(time.Minute)
	timing.MaxBackoff = 20 * time.Millisecond
	return stream.Options{
		Open: open, Output: out, Timing: timing,
		Check:        func(context.Context, error) error { return nil },
		CancelUnseen: func(context.Context, time.Duration) error { return nil },
		Notice:       func(string) {},
	}
}

// Every connection breaks somewhere: within the header, the script, a frame, the exit. The output is what the script wrote,
// byte for byte, and the script ran once.
func TestOutputIsExactOverConnectionsThatBreakAnywhere(t *testing.T) {
	c := newContainer(t)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 7))
	blob := make([]byte, 96<<10)
	for i := range blob {
		blob[i] = byte(random.Uint32())
	}
	file := filepath.Join(t.TempDir(), "blob")
	require.NoError(t, os.WriteFile(file, blob, 0o600))
	for round := range 25 {
		starts := filepath.Join(t.TempDir(), "starts")
		script := fmt.Sprintf("# %s\necho started >> %s\ni=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); done\ncat %s\necho; exit 7\n",
			strings.Repeat("x", random.IntN(20000)), starts, file)
		var want bytes.Buffer
		for i := range 400 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		want.Write(blob)
		want.WriteByte('\n')

		var got bytes.Buffer
		connections, scale := 0, 1+random.IntN(40000)
		id := fmt.Sprintf("build_script-%d", round)
		exit, err := stream.Follow(t.Context(), stream.Script{ID: id, Text: []byte(script)}, options(&got, func(ctx context.Context) (io.ReadWriteCloser, error) {
			connections++
			conn, err := c.open(ctx, id)
			if err != nil {
				return nil, err
			}
			// It gets better with time, or nothing would ever end.
			return &cut{ReadWriteCloser: conn, read: 1 + random.IntN(scale*connections), write: 1 + random.IntN(scale*connections)}, nil
		}))
		require.NoError(t, err, "round %d", round)
		require.Equal(t, 7, exit.Code)
		require.Equal(t, hex.EncodeToString(want.Bytes()), hex.EncodeToString(got.Bytes()), "round %d, %d connections", round, connections)
		begun, err := os.ReadFile(starts)
		require.NoError(t, err)
		require.Equal(t, "started\n", string(begun), "round %d: the script ran more than once", round)
		t.Logf("round %d: %d connections", round, connections)
	}
}

func TestMuchOutputInOneConnection(t *testing.T) {
	c := newContainer(t)
	var got bytes.Buffer
	exit, err := stream.Follow(t.Context(), stream.Script{ID: "big", Text: []byte("head -c 30000000 /dev/zero")},
		options(&got, func(ctx context.Context) (io.ReadWriteCloser, error) { return c.open(ctx, "big") }))
	require.NoError(t, err)
	require.Zero(t, exit.Code)
	require.Equal(t, 30_000_000, got.Len(), "more than the pod's window: it goes on only where output is acknowledged")
}

func TestCancelReachesTheScriptAndItsLastWordsArrive(t *testing.T) {
	c := newContainer(t)
	cancel := make(chan time.Duration, 1)
	got := &trigger{word: "ready", then: func() { cancel <- 20 * time.Second }}
	o := options(got, func(ctx context.Context) (io.ReadWriteCloser, error) { return c.open(ctx, "c") })
	o.Cancel = cancel
	script := "trap 'echo last words; exit 9' TERM\necho ready\nwhile :; do sleep 0.05; done\n"
	exit, err := stream.Follow(t.Context(), stream.Script{ID: "c", Text: []byte(script)}, o)
	require.NoError(t, err)
	require.Equal(t, 9, exit.Code)
	require.True(t, exit.Cancelled)
	require.True(t, strings.HasPrefix(got.String(), "ready\n") && strings.HasSuffix(got.String(), "last words\n"), "%q", got.String()) // some shells have a word of their own between
}

// trigger does something when a word has come.
type trigger struct {
	bytes.Buffer
	word string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.then != nil && strings.Contains(w.String(), w.word) {
		w.then()
		w.then = nil
	}
	return n, err
}
