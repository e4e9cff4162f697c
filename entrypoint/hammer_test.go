//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// Several drivers that know nothing of each other start, follow, leave, cancel and replace scripts at random. Whatever
// they do, nobody waits for ever, no script starts twice, and the next driver finds a container that works.
func TestAnyOrderOfDrivers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	p, f := claimedPod(t)
	var drivers sync.WaitGroup
	var stage atomic.Int64
	endings := make(chan string, 1000)
	for n := range 4 {
		drivers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for range 40 {
				endings <- visit(t, p, random, &stage)
			}
		})
	}
	done := make(chan struct{})
	go func() { drivers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * patience):
		require.FailNow(t, "a driver waits for ever", "goroutines of PID 1: %d\n%s", goroutines(t, f), f.log)
	}
	close(endings)
	counts := map[string]int{}
	for ending := range endings {
		counts[ending]++
	}
	t.Logf("%v", counts)
	require.Zero(t, counts["no end"], "a connection ended without a word although nobody cut it")
	starts, err := filepath.Glob(filepath.Join(p.dir, "starts-*"))
	require.NoError(t, err)
	require.NotEmpty(t, starts)
	for _, file := range starts {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, []string{"x\n", ""}, string(b), file) // it may have been killed before it wrote
	}
	out, _ := p.script(t, wire.Build, "last", "echo works")
	require.Equal(t, "works\n", out)
	eventually(t, func() bool { return len(children(t, f.cmd.Process.Pid)) == 0 })
}

// visit is one visit of a driver, and returns how it ended. Most are for the same script, some begin the next one, some
// come too late.
func visit(t *testing.T, p *pod, random *rand.Rand, stage *atomic.Int64) string {
	number := stage.Load()
	switch random.IntN(8) {
	case 0:
		number = stage.Add(1)
	case 1:
		number--
	}
	id := fmt.Sprint("script-", number)
	if random.IntN(12) == 0 {
		if err := p.command(t, wire.Build, wire.CommandCancel, "--id", id, "--grace", "10ms").Run(); err != nil {
			return "cancel: " + err.Error()
		}
		return "cancelled"
	}
	script := fmt.Sprintf("echo x >> %s/starts-%s; seq 20000; sleep 0.05; seq 20000", p.dir, id)
	if random.IntN(3) == 0 {
		script = strings.Replace(script, "echo", "trap '' TERM; echo", 1) + "; sleep 0.2"
	}
	s := p.open(t, wire.Build, id)
	defer s.cut()
	line, err := json.Marshal(header(id, script, 0))
	if err != nil {
		return err.Error()
	}
	if _, err := io.WriteString(s.in, string(line)+"\n"+script); err != nil {
		return "no way in"
	}
	cut := random.IntN(3) == 0
	for frames := 0; ; frames++ {
		kind, payload, err := s.try()
		switch {
		case err != nil:
			return "no end"
		case kind == wire.FrameExit:
			return "exit"
		case kind == wire.FrameError:
			return "failure"
		case cut && frames > random.IntN(5):
			return "cut"
		case kind == wire.FrameOutput:
			s.offset += int64(len(payload))
			if s.offset > wire.Window/2 { // before that, the next one can begin at the beginning
				_, _ = fmt.Fprintf(s.in, "{\"ack\":%d}\n", s.offset)
			}
		}
		if random.IntN(200) == 0 {
			_, _ = io.WriteString(s.in, "{\"cancel\":\"20ms\"}\n")
		}
	}
}
