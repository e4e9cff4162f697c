//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestCancelEndsAllProcesses(t *testing.T) {
	p, _ := claimedPod(t)
	file := func(name string) string { return filepath.Join(p.dir, name) }
	// In the script's group, deaf to TERM; in a session of its own; an orphan in a session of its own, deaf.
	script := fmt.Sprintf(`
(trap '' TERM; echo $BASHPID > %[1]s; while :; do sleep 60; done) &
setsid sh -c 'trap "echo its last words; exit" TERM; echo $$ > %[2]s; while :; do sleep 0.01; done' &
(setsid sh -c 'trap "" TERM; echo $$ > %[3]s; while :; do sleep 60; done' &)
while ! [ -s %[1]s ] || ! [ -s %[2]s ] || ! [ -s %[3]s ]; do sleep 0.01; done
echo up; sleep 60`, file("deaf"), file("session"), file("orphan"))
	s := p.begin(t, wire.Build, "a", script, 0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "300ms"})
	last, exit := s.rest()
	require.Contains(t, last, "its last words\n", "TERM reaches every session")
	require.Equal(t, 143, exit.Code)
	require.True(t, exit.Cancelled)
	for _, name := range []string{"deaf", "session", "orphan"} {
		require.False(t, alive(readPid(t, file(name))), name)
	}
	out, exit := p.script(t, wire.Build, "after_script", "echo after")
	require.Equal(t, "after\n", out, "a cancel is not the end of the job")
	require.False(t, exit.Cancelled)
}

func TestACancelledScriptMayCleanUp(t *testing.T) {
	p, _ := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "trap 'echo cleaning; sleep 0.1; echo cleaned; exit 1' TERM\necho up\nsleep 60 & wait", 0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "20s"})
	out, exit := s.rest()
	require.Equal(t, "cleaning\ncleaned\n", out)
	require.Equal(t, 1, exit.Code)
	require.True(t, exit.Cancelled)
}

func TestALaterCancelMayShortenTheGrace(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "trap '' TERM; echo up; while :; do sleep 60; done", 0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "1h"})
	eventually(t, func() bool { return strings.Contains(f.log.String(), "being ended") })
	s.control(wire.Control{Cancel: "0s"})
	_, exit := s.rest()
	require.Equal(t, 137, exit.Code)
}

// The command is for a driver whose connection is broken.
func TestCancelCommand(t *testing.T) {
	p, f := claimedPod(t)
	cancel := func(id string, grace string) {
		out, err := p.command(t, wire.Build, wire.CommandCancel, "--id", id, "--grace", grace).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
	}
	s := p.begin(t, wire.Build, "a", "echo up; sleep 60", 0)
	s.until("up\n")
	s.cut()
	cancel("a", "5s")
	s = p.begin(t, wire.Build, "a", "echo up; sleep 60", 3)
	_, exit := s.rest()
	require.Equal(t, wire.Exit{Code: 143, Offset: 3, Cancelled: true}, exit)
	cancel("a", "5s")

	// What comes after its cancel is not started.
	cancel("b", "5s")
	s = p.open(t, wire.Build, "b")
	s.send(header("b", "echo hi", 0), "echo hi")
	failure := s.failure()
	require.Contains(t, failure.Message, "it was cancelled before it was started")
	require.False(t, failure.Retry)
	require.NotContains(t, f.log.String(), `msg="run started" id=b`)
}

// A fork bomb's children are faster than a look at /proc.
func TestCancelOutrunsForks(t *testing.T) {
	p, f := claimedPod(t)
	s := p.begin(t, wire.Build, "a", `trap '' TERM
spawn() { trap '' TERM; i=0; while [ $i -lt 500 ]; do i=$((i+1)); (sleep 0.01; (exec sleep 60) & ) & sleep 0.002; done; }
spawn & spawn &
sleep 0.2; echo up; while :; do sleep 60; done`, 0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "0s"})
	_, exit := s.rest()
	require.Equal(t, 137, exit.Code)
	require.Empty(t, children(t, f.cmd.Process.Pid))
}

func TestABrokenConnectionIsNoCancel(t *testing.T) {
	p, _ := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "echo up; sleep 0.2; echo through", 0)
	s.until("up\n")
	s.cut()
	s = p.begin(t, wire.Build, "a", "echo up; sleep 0.2; echo through", 3)
	out, exit := s.rest()
	require.Equal(t, "through\n", out)
	require.Zero(t, exit.Code)
}
