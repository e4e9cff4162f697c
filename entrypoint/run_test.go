//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestFourMiBInOneLineAndBinaryOutput(t *testing.T) {
	p, _ := claimedPod(t)
	out, _ := p.script(t, wire.Build, "line", "head -c 4194304 /dev/zero | tr '\\0' x; echo")
	require.Equal(t, strings.Repeat("x", 4<<20)+"\n", out)

	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * 7 >> 3)
	}
	file := filepath.Join(p.dir, "noise")
	require.NoError(t, os.WriteFile(file, noise, 0o644))
	out, _ = p.script(t, wire.Build, "binary", "cat "+file)
	require.True(t, bytes.Equal(noise, []byte(out)))
}

func TestAHundredMBOfLog(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "yes 'a line of a log, as builds write them' | head -c 100000000", 0)
	line := []byte("a line of a log, as builds write them\n")
	want := bytes.Repeat(line, (256<<10)/len(line)+2)
	for s.offset < 100_000_000 {
		kind, payload := s.frame()
		require.Equal(t, wire.FrameOutput, kind)
		at := int(s.offset) % len(line)
		if !bytes.Equal(want[at:at+len(payload)], payload) {
			require.FailNow(t, "other bytes", "at %d", s.offset)
		}
		s.offset += int64(len(payload))
		s.control(wire.Control{Ack: s.offset})
	}
	_, exit := s.rest()
	require.Equal(t, int64(100_000_000), exit.Offset)
	peak := statusNumber(t, fmt.Sprintf("/proc/%d/status", f.cmd.Process.Pid), "VmHWM")
	t.Logf("PID 1 had up to %d KiB", peak)
	if !raced {
		require.Less(t, peak, 24<<10)
	}
}

// A script may not run ahead of its driver by more than the window, and goes on when the driver does.
func TestAScriptWaitsForItsDriver(t *testing.T) {
	p, _ := claimedPod(t)
	progress := filepath.Join(p.dir, "progress")
	script := fmt.Sprintf("i=0; while [ $i -lt 100 ]; do head -c 131072 /dev/zero; i=$((i+1)); echo $i > %[1]s.new; mv %[1]s.new %[1]s; done", progress)
	s := p.begin(t, wire.Build, "a", script, 0)
	s.cut()
	at := func() int {
		b, _ := os.ReadFile(progress)
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n
	}
	const blocks = wire.Window / 131072
	eventually(t, func() bool { return at() == blocks })
	// It is blocked in a write now, with a pipe full: no file of its own can show more.
	s = p.begin(t, wire.Build, "a", script, 0)
	require.False(t, s.hello.Started)
	require.LessOrEqual(t, at(), blocks+1)
	out, exit := s.rest()
	require.Len(t, out, 100*131072)
	require.Zero(t, exit.Code)
}

func TestTheStageEndsWithTheShell(t *testing.T) {
	p, _ := claimedPod(t)
	pidFile := filepath.Join(p.dir, "pid")
	// A server that goes on writing to the job's log must not hold the stage, and must not die of it.
	script := fmt.Sprintf("(while :; do echo noise; sleep 0.01; done) & echo $! > %s; echo started", pidFile)
	out, exit := p.script(t, wire.Build, "a", script)
	require.Zero(t, exit.Code)
	require.Contains(t, out, "started\n")
	pid := readPid(t, pidFile)
	for i := range 20 {
		out, _ := p.script(t, wire.Build, fmt.Sprint("next", i), fmt.Sprintf("kill -0 %d && echo lives; i=0; while [ $i -lt 100 ]; do i=$((i+1)); done", pid))
		require.Equal(t, "lives\n", out, "and its output is not that of a later stage")
	}
	require.True(t, alive(pid))
}

func readPid(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	return pid
}

// What a process of the script's own, that the shell doesn't wait for, is about to write belongs to the log.
func TestATeeBehindTheShellIsHeard(t *testing.T) {
	p, _ := claimedPod(t)
	for i := range 20 {
		out, exit := p.script(t, wire.Build, fmt.Sprint(i), "exec > >(sed 's/^/log: /') 2>&1\necho one\necho two\nexit 4")
		require.Equal(t, "log: one\nlog: two\n", out)
		require.Equal(t, 4, exit.Code)
	}
}

func TestResume(t *testing.T) {
	p, _ := claimedPod(t)
	go_ := filepath.Join(p.dir, "go")
	script := fmt.Sprintf("echo begun; while ! [ -e %s ]; do sleep 0.01; done; echo done; exit 6", go_)
	s := p.begin(t, wire.Build, "a", script, 0)
	require.True(t, s.hello.Started)
	require.Equal(t, "a", s.hello.ID)
	s.until("begun\n")
	s.cut()

	// From what was had, without the script.
	s = p.open(t, wire.Build, "a")
	s.send(wire.RunHeader{Protocol: wire.Protocol, ID: "a", Offset: 6}, "")
	s.greet(6)
	require.False(t, s.hello.Started)

	// A second one takes over while the first is there, and the first is told.
	second := p.begin(t, wire.Build, "a", script, 6)
	require.Contains(t, s.failure().Message, "took the place of this one")
	require.NoError(t, os.WriteFile(go_, nil, 0o644))
	out, exit := second.rest()
	require.Equal(t, "done\n", out)
	require.Equal(t, wire.Exit{Code: 6, Offset: 11}, exit)

	// The exit was taken, and can be had again: the driver may have died over it.
	third := p.begin(t, wire.Build, "a", script, 11)
	_, exit = third.rest()
	require.Equal(t, 6, exit.Code)
	for offset, message := range map[int64]string{6: "output before offset 11 was acknowledged", 12: "there are 11 bytes"} {
		s := p.open(t, wire.Build, "a")
		s.send(header("a", script, offset), script)
		failure := s.failure()
		require.Contains(t, failure.Message, message)
		require.False(t, failure.Retry)
	}
}

// The exit and all output wait for a driver that was away when the script ended.
func TestTheExitIsKept(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "sleep 0.05; seq 1000; exit 9", 0)
	s.cut()
	eventually(t, func() bool { return strings.Contains(f.log.String(), "run ended") })
	s = p.begin(t, wire.Build, "a", "sleep 0.05; seq 1000; exit 9", 0)
	out, exit := s.rest()
	require.Equal(t, 9, exit.Code)
	require.Equal(t, 1000, strings.Count(out, "\n"))
}

func TestRefusals(t *testing.T) {
	p, _ := claimedPod(t)
	good := header("a", "echo hi", 0)
	cases := map[string]struct {
		change func(h *wire.RunHeader)
		script string
		fail   string
		again  bool
	}{
		"another protocol":     {func(h *wire.RunHeader) { h.Protocol = 99 }, "echo hi", "the driver speaks protocol 99, this pod's entrypoint " + strconv.Itoa(wire.Protocol), false},
		"another id":           {func(h *wire.RunHeader) { h.ID = "b" }, "echo hi", `the header is of run "b", the command of run "a"`, false},
		"a negative offset":    {func(h *wire.RunHeader) { h.Offset = -1 }, "echo hi", "offset -1 is negative", false},
		"an offset of nothing": {func(h *wire.RunHeader) { h.ID = "a"; h.ScriptBytes, h.ScriptSHA256 = 0, "" }, "", "no script a was started here", false},
		"too long":             {func(h *wire.RunHeader) { h.ScriptBytes = wire.MaxScript + 1 }, "echo hi", "at most 67108864 are taken", false},
		"the wrong digest":     {func(h *wire.RunHeader) { h.ScriptSHA256 = strings.Repeat("0", 64) }, "echo hi", "another SHA-256", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := good
			c.change(&h)
			s := p.open(t, wire.Build, "a")
			s.send(h, c.script)
			failure := s.failure()
			require.Contains(t, failure.Message, c.fail)
			require.Equal(t, c.again, failure.Retry)
			_, _, err := s.try()
			require.Error(t, err, "a failure is the last frame")
		})
	}
	t.Run("no JSON", func(t *testing.T) {
		s := p.open(t, wire.Build, "a")
		_, err := s.in.Write([]byte("hello\n"))
		require.NoError(t, err)
		require.Contains(t, s.failure().Message, "not the JSON it should be")
	})
	t.Run("the id of another script", func(t *testing.T) {
		p.script(t, wire.Build, "a", "echo hi")
		s := p.open(t, wire.Build, "a")
		s.send(header("a", "echo ho", 0), "echo ho")
		require.Contains(t, s.failure().Message, "each run needs an id of its own")
	})
	t.Run("an acknowledgement of what never was", func(t *testing.T) {
		s := p.begin(t, wire.Build, "b", "sleep 60", 0)
		s.control(wire.Control{Ack: 1})
		require.Contains(t, s.failure().Message, "offset 1 was acknowledged, and 0 bytes were sent")
	})
	t.Run("a cancel with a grace of nonsense", func(t *testing.T) {
		s := p.begin(t, wire.Build, "b", "sleep 60", 0)
		s.control(wire.Control{Cancel: "soon"})
		require.Contains(t, s.failure().Message, `cancel with grace "soon"`)
	})
}

// A script that came in part is not started, however it ends.
func TestAScriptThatIsCutIsNotStarted(t *testing.T) {
	p, f := claimedPod(t)
	mark := filepath.Join(p.dir, "mark")
	script := "echo x >> " + mark + "\n" + strings.Repeat("#\n", 50_000)
	for _, n := range []int{0, 1, 30, 50_000, len(script) - 1} {
		s := p.open(t, wire.Build, "a")
		s.send(header("a", script, 0), script[:n])
		require.NoError(t, s.in.Close())
		_ = s.cmd.Wait()
	}
	require.NotContains(t, f.log.String(), "run started")
	_, exit := p.script(t, wire.Build, "a", script)
	require.Zero(t, exit.Code)
	b, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(b))
}

func TestANewScriptEndsTheOldOne(t *testing.T) {
	p, f := claimedPod(t)
	old := p.begin(t, wire.Build, "old", "trap 'echo ending; exit 1' TERM; echo up; while :; do sleep 0.01; done", 0)
	old.until("up\n")
	out, _ := p.script(t, wire.Build, "new", "echo new")
	require.Equal(t, "new\n", out)
	require.Contains(t, old.failure().Message, "another script took its place")
	require.Contains(t, f.log.String(), `msg="run ended" id=old code=1`)

	s := p.open(t, wire.Build, "old")
	s.send(wire.RunHeader{Protocol: wire.Protocol, ID: "old"}, "")
	failure := s.failure()
	require.Contains(t, failure.Message, "script new was started after it")
	require.False(t, failure.Retry)
}

// The old one may be stuck with a full spool and no driver, running or not.
func TestANewScriptEndsAFullOne(t *testing.T) {
	p, f := claimedPod(t)
	full := filepath.Join(p.dir, "full")
	fill := fmt.Sprintf("head -c %d /dev/zero; echo > %s; ", wire.Window+32<<10, full)
	for _, end := range []string{"head -c 1000000 /dev/zero", "exit 3"} {
		p.begin(t, wire.Build, end, fill+end, 0).cut()
		eventually(t, func() bool { return exists(full) })
		require.NoError(t, os.Remove(full))
	}
	out, _ := p.script(t, wire.Build, "new", "echo new")
	require.Equal(t, "new\n", out)
	eventually(t, func() bool { return strings.Count(f.log.String(), `msg="run ended"`) == 3 })
}

// An offset and a Done acknowledge as well.
func TestWhatIsAcknowledgedIsGone(t *testing.T) {
	p, _ := claimedPod(t)
	const script = "echo 0123456789; sleep 60"
	p.begin(t, wire.Build, "a", script, 0).cut()
	var s *session
	attach := func(offset int64) bool {
		s = p.open(t, wire.Build, "a")
		s.send(header("a", script, offset), script)
		kind, _, err := s.try()
		return err == nil && kind == wire.FrameHello
	}
	eventually(t, func() bool { return attach(11) }) // the output has to be there
	require.False(t, attach(10))
	require.True(t, attach(11))
	s.control(wire.Control{Ack: 11}) // of what an earlier connection brought
	s.control(wire.Control{Cancel: "0s"})
	s.offset = 11
	_, exit := s.rest()
	require.True(t, exit.Cancelled)

	s = p.begin(t, wire.Build, "b", "echo hi", 0)
	for kind := byte(0); kind != wire.FrameExit; {
		kind, _ = s.frame()
	}
	s.control(wire.Control{Done: true})
	_, _, err := s.try()
	require.Error(t, err)
	s = p.open(t, wire.Build, "b")
	s.send(header("b", "echo hi", 0), "echo hi")
	require.Contains(t, s.failure().Message, "output before offset 3 was acknowledged")
}

func TestStoppedWhileAScriptRuns(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "trap 'echo ending; exit 1' TERM; echo up; while :; do sleep 0.01; done", 0)
	s.until("up\n")
	f.signal(t, syscall.SIGTERM)
	require.Contains(t, s.failure().Message, "the container was told to stop")
	require.Equal(t, wire.ExitStopped, f.code(t))
}

func TestAScriptThatFinishesItsWorkWhenStoppedHasDoneIt(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "trap 'n=1' TERM; echo up; while [ -z $n ]; do sleep 0.01; done; echo finished", 0)
	s.until("up\n")
	f.signal(t, syscall.SIGTERM)
	out, exit := s.rest()
	require.True(t, strings.HasSuffix(out, "finished\n"), out)
	require.Equal(t, 0, exit.Code)
	require.Equal(t, wire.ExitStopped, f.code(t))
}

func TestStoppedWithoutAScript(t *testing.T) {
	p := newPod(t)
	f := p.serve(t, wire.Build)
	eventually(t, func() bool { return strings.Contains(f.log.String(), "started") })
	f.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, f.code(t))
	result, code := p.claim(t, wire.Build, "1")
	require.Equal(t, "expired", result.Result, "a claim that comes too late is told so")
	require.Equal(t, wire.ExitExpired, code)

	p, f = claimedPod(t)
	pidFile := filepath.Join(p.dir, "pid")
	p.script(t, wire.Build, "a", "(trap '' TERM; while :; do sleep 0.1; done) & echo $! >"+pidFile)
	f.signal(t, syscall.SIGTERM)
	require.Equal(t, wire.ExitStopped, f.code(t))
	require.False(t, alive(readPid(t, pidFile)), "what a script left behind ends as well")
}
