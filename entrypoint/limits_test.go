//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// asReleased skips where the program under test is larger than the one that users get.
func asReleased(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("built with the race detector")
	}
}

func TestSize(t *testing.T) {
	asReleased(t)
	info, err := os.Stat(theBinary(t))
	require.NoError(t, err)
	t.Logf("%d bytes", info.Size())
	require.Less(t, info.Size(), int64(6<<20))
	out, err := exec.Command("ldd", theBinary(t)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "not a dynamic executable")
}

// rss is the resident memory of a process in bytes.
func rss(t testing.TB, pid int) int {
	t.Helper()
	return statusNumber(t, fmt.Sprintf("/proc/%d/status", pid), "VmRSS") << 10
}

func statusNumber(t testing.TB, file, name string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+)`).FindSubmatch(b)
	require.NotNil(t, m, "%s", b)
	n, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return n
}

// switches is how often the threads of a process gave up or were taken a CPU.
func switches(t testing.TB, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	require.NoError(t, err)
	sum := 0
	for _, file := range files {
		sum += statusNumber(t, file, "voluntary_ctxt_switches")
	}
	return sum
}

func TestAnIdlePID1IsSmallAndSleeps(t *testing.T) {
	asReleased(t)
	p := newPod(t)
	f := p.serve(t, wire.Build, wire.EnvIdleTime+"=1h")
	eventually(t, func() bool { return strings.Contains(f.log.String(), "started") })
	pid := f.cmd.Process.Pid
	t.Logf("%d KiB", rss(t, pid)>>10)
	require.Less(t, rss(t, pid), 8<<20)
	// The runtime has things to do after its start; then there is a second without a wake-up.
	eventually(t, func() bool {
		before := switches(t, pid)
		time.Sleep(time.Second)
		return switches(t, pid) == before
	})
}

func TestAFollowerIsSmall(t *testing.T) {
	asReleased(t)
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "echo up; sleep 60", 0)
	s.until("up\n")
	t.Logf("relay %d KiB, PID 1 %d KiB", rss(t, s.cmd.Process.Pid)>>10, rss(t, f.cmd.Process.Pid)>>10)
	require.Less(t, rss(t, s.cmd.Process.Pid), 8<<20)
	require.Less(t, rss(t, f.cmd.Process.Pid), 8<<20)
}

func TestNothingIsLeftAfterManyRuns(t *testing.T) {
	p, f := claimedPod(t)
	pid := f.cmd.Process.Pid
	count := func() (fds int) {
		names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		require.NoError(t, err)
		return len(names)
	}
	p.script(t, wire.Build, "first", "echo hi")
	eventually(t, func() bool { return len(children(t, pid)) == 0 })
	before := count()
	p.manyRuns(t, 200)
	eventually(t, func() bool { return len(children(t, pid)) == 0 })
	eventually(t, func() bool { return count() <= before })
	t.Logf("%d descriptors, %d KiB", count(), rss(t, pid)>>10)
	if !raced {
		require.Less(t, rss(t, pid), 24<<20, "four MiB of window, and what the collector leaves")
	}
}

func TestNoGoroutineIsLeftAfterManyRuns(t *testing.T) {
	p := newPod(t)
	cmd := p.command(t, wire.Build, wire.CommandServe)
	cmd.Path = os.Args[0]
	cmd.Env = append(cmd.Env, wire.EnvIdleTime+"=0s", dumpEnv+"=1")
	f := startFirst(t, cmd)
	eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Build)) })
	p.claim(t, wire.Build, "1")
	p.manyRuns(t, 50)
	eventually(t, func() bool { return len(children(t, f.cmd.Process.Pid)) == 0 })
	require.Less(t, goroutines(t, f), 10, "three are always there, a connection may be just closing")
}

// manyRuns runs scripts in all the ways in which one can end.
func (p *pod) manyRuns(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("run", i)
		switch i % 5 {
		case 0: // the driver goes away and comes back
			p.begin(t, wire.Build, id, "seq 100", 0).cut()
			s := p.begin(t, wire.Build, id, "seq 100", 0)
			s.rest()
			s.cut()
		case 1: // it leaves, and the next script replaces this one
			p.begin(t, wire.Build, id, "sleep 60", 0).cut()
		case 2: // an orphan goes on for a while
			p.script(t, wire.Build, id, "sleep 0.5 & echo hi")
		case 3:
			p.script(t, wire.Build, id, "head -c 3000000 /dev/zero")
		case 4: // it is refused
			s := p.open(t, wire.Build, id)
			s.send(wire.RunHeader{Protocol: wire.Protocol, ID: id}, "")
			s.failure()
			s.cut()
		}
	}
}

// goroutines ends a PID 1 and returns how many goroutines of ours it had.
func goroutines(t testing.TB, f *first) int {
	t.Helper()
	f.signal(t, dumpSignal)
	<-f.exited
	n := 0
	for goroutine := range strings.SplitSeq(f.log.String(), "\n\n") {
		if strings.HasPrefix(goroutine, "goroutine ") && strings.Contains(goroutine, "idlecount/entrypoint/") {
			n++
		}
	}
	require.Positive(t, n)
	return n
}

// A stream that died without an end must not count as a driver for ever; a script that is quiet must not look like one.
func TestHalfOpenStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 30 s of silence")
	}
	t.Parallel()
	p, _ := claimedPod(t)
	p2, _ := claimedPod(t)
	silent := p.open(t, wire.Build, "a")
	h := header("a", "sleep 60", 0)
	h.Pings = true
	silent.send(h, "sleep 60")
	silent.greet(0)
	quiet := p2.begin(t, wire.Build, "a", "sleep 60", 0) // promised nothing
	pings := 0
	for {
		kind, _, err := silent.try()
		if err != nil {
			break
		}
		require.Equal(t, string(wire.FramePing), string(kind))
		pings++
	}
	require.GreaterOrEqual(t, pings, 2)
	quiet.control(wire.Control{Cancel: "0s"})
	_, exit := quiet.rest()
	require.True(t, exit.Cancelled)
	next := p.begin(t, wire.Build, "a", "sleep 60", 0)
	require.False(t, next.hello.Started, "the script goes on meanwhile")
}

func BenchmarkStage(b *testing.B) {
	p, _ := claimedPod(b)
	n := 0
	for b.Loop() {
		n++
		s := p.begin(b, wire.Build, fmt.Sprint(n), "echo hi", 0)
		s.rest()
		s.cut()
	}
}

func BenchmarkBareProcess(b *testing.B) {
	for b.Loop() {
		require.NoError(b, exec.Command("sh", "-c", "echo hi").Run())
	}
}

func BenchmarkOutput(b *testing.B) {
	p, _ := claimedPod(b)
	b.SetBytes(100_000_000)
	n := 0
	for b.Loop() {
		n++
		s := p.begin(b, wire.Build, fmt.Sprint(n), "head -c 100000000 /dev/zero", 0)
		for s.offset < 100_000_000 {
			var head [5]byte
			_, err := io.ReadFull(s.out, head[:])
			require.NoError(b, err)
			size := int64(head[1])<<24 | int64(head[2])<<16 | int64(head[3])<<8 | int64(head[4])
			_, err = io.CopyN(io.Discard, s.out, size)
			require.NoError(b, err)
			s.offset += size
			s.control(wire.Control{Ack: s.offset})
		}
		s.rest()
		s.cut()
	}
}
