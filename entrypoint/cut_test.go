//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// Whatever bytes a connection breaks at, in either direction: the output arrives once and in order, and the script runs
// once. The driver of this test keeps what it read before the cut, acknowledges only sometimes, and comes back at once.
func TestEveryNumberOnceInOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	p, f := claimedPod(t)
	rounds, cuts := 12, 0
	for round := range rounds {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		lines := 2000 + random.IntN(20_000)
		starts := filepath.Join(p.dir, fmt.Sprint("starts", round))
		script := fmt.Sprintf("echo started >> %s\n#%s\nseq 1 %d; sleep 0.0%d; seq %d %d >&2; exit %d",
			starts, bytes.Repeat([]byte("x"), random.IntN(100_000)), lines, random.IntN(5), lines+1, 2*lines, round)
		var want bytes.Buffer
		for i := 1; i <= 2*lines; i++ {
			fmt.Fprintln(&want, i)
		}
		d := &driver{pod: p, random: random, id: fmt.Sprint("round", round), script: script}
		for d.exit == nil {
			// The longer it takes, the longer connections last, or it would never end.
			d.connect(t, 1+random.IntN(1000*(d.connections+1)), 1+random.IntN(1000*(d.connections+1)))
		}
		require.Equal(t, round, d.exit.Code)
		require.Equal(t, int64(want.Len()), d.exit.Offset)
		require.True(t, bytes.Equal(want.Bytes(), d.output), "seed %d, round %d: %d bytes, want %d", seed, round, len(d.output), want.Len())
		b, err := os.ReadFile(starts)
		require.NoError(t, err)
		require.Equal(t, "started\n", string(b), "seed %d, round %d", seed, round)
		cuts += d.connections - 1
	}
	require.Equal(t, rounds, bytes.Count([]byte(f.log.String()), []byte(`msg="run started"`)))
	require.Greater(t, cuts, rounds)
	t.Logf("%d cuts", cuts)
}

// driver follows one script over connections that break.
type driver struct {
	pod         *pod
	random      *rand.Rand
	id, script  string
	output      []byte
	acked       int64
	exit        *wire.Exit
	connections int
}

// connect attaches once, with a connection that breaks after so many bytes to and from the pod.
func (d *driver) connect(t *testing.T, toPod, fromPod int) {
	t.Helper()
	d.connections++
	s := d.pod.open(t, wire.Build, d.id)
	defer s.cut()
	line, err := json.Marshal(header(d.id, d.script, int64(len(d.output))))
	require.NoError(t, err)
	in := &breaking{to: s.in, left: toPod, broken: func() { _ = s.cmd.Process.Kill() }}
	go func() { _, _ = io.WriteString(in, string(line)+"\n"+d.script) }()
	s.out.Reset(io.LimitReader(s.stdout, int64(fromPod)))
	for d.exit == nil {
		kind, payload, err := s.try()
		if err != nil {
			return // a frame that didn't come in full is asked for again
		}
		d.take(t, in, kind, payload)
	}
}

func (d *driver) take(t *testing.T, in *breaking, kind byte, payload []byte) {
	t.Helper()
	switch kind {
	case wire.FrameHello:
		var hello wire.Hello
		require.NoError(t, json.Unmarshal(payload, &hello))
		require.Equal(t, int64(len(d.output)), hello.Offset)
	case wire.FrameOutput:
		d.output = append(d.output, payload...)
		if d.random.IntN(3) == 0 {
			d.acked = int64(len(d.output))
			fmt.Fprintf(in, "{\"ack\":%d}\n", d.acked)
		}
	case wire.FrameExit:
		var exit wire.Exit
		require.NoError(t, json.Unmarshal(payload, &exit))
		d.exit = &exit
	case wire.FramePing:
	default:
		require.FailNow(t, "unexpected frame", "%q %s", kind, payload)
	}
}

// breaking is a way to the pod that ends after so many bytes, and the connection with it.
type breaking struct {
	to     io.Writer
	broken func()
	mu     sync.Mutex
	left   int
}

func (b *breaking) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	b.left -= n
	n, err := b.to.Write(p[:n])
	if b.left == 0 {
		b.broken()
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}
