//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestClaimCommand(t *testing.T) {
	p := newPod(t)
	p.serve(t, wire.Build)
	eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Build)) })
	for range 2 {
		result, code := p.claim(t, wire.Build, "41")
		require.Equal(t, wire.ClaimResult{Protocol: wire.Protocol, Result: "claimed", Job: "41", Shell: result.Shell}, result)
		require.NotEmpty(t, result.Shell)
		require.Equal(t, wire.ExitOK, code)
	}
	result, code := p.claim(t, wire.Helper, "42")
	require.Equal(t, "other", result.Result)
	require.Equal(t, "41", result.Job)
	require.Equal(t, wire.ExitOther, code)
}

func TestAnUnclaimedPodRunsNothing(t *testing.T) {
	p := newPod(t)
	f := p.serve(t, wire.Build)
	s := p.open(t, wire.Build, "a")
	s.send(header("a", "echo hi", 0), "echo hi")
	require.Contains(t, s.failure().Message, "this pod is not claimed")
	require.NotContains(t, f.log.String(), "run started")
}

func TestAnIdlePodEndsItselfInBothContainers(t *testing.T) {
	p := newPod(t)
	build := p.serve(t, wire.Build, wire.EnvIdleTime+"=300ms")
	// Its own timer would take an hour: it ends since the other one said so.
	helper := p.serve(t, wire.Helper, wire.EnvIdleTime+"=1h")
	require.Equal(t, wire.ExitOK, build.code(t))
	require.Equal(t, wire.ExitOK, helper.code(t))
	require.Contains(t, build.log.String(), "expired")
	require.False(t, exists(wire.Socket(p.runDir(), wire.Build)), "a socket without a listener would make an exec wait")
}

func TestAClaimStopsTheTimersOfBothContainers(t *testing.T) {
	t.Parallel() // it waits more than it works
	p := newPod(t)
	build := p.serve(t, wire.Build, wire.EnvIdleTime+"=3s")
	// Without a word this one would learn of the claim in an hour.
	helper := p.serve(t, wire.Helper, wire.EnvIdleTime+"=1h")
	eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Helper)) })
	_, code := p.claim(t, wire.Build, "41")
	require.Equal(t, wire.ExitOK, code)
	for _, f := range []*first{build, helper} {
		eventually(t, func() bool { return strings.Contains(f.log.String(), "claimed") })
	}
	out, _ := p.script(t, wire.Build, "a", "sleep 4; echo lives")
	require.Equal(t, "lives\n", out)
	out, _ = p.script(t, wire.Helper, "a", "echo lives")
	require.Equal(t, "lives\n", out)
}

// Many drivers claim at the moment when both timers end: either one job has the pod and both containers live, or none
// has and both end.
func TestClaimsAndTimersExcludeEachOther(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	outcomes := map[string]int{}
	// On a busy machine one side may win often: it goes on until both have won.
	for round := 0; round < 25 || len(outcomes) < 2; round++ {
		require.Less(t, round, 400, "the race was none: %v", outcomes)
		p := newPod(t)
		idle := 40 + random.IntN(60)
		timer := fmt.Sprintf("%s=%dms", wire.EnvIdleTime, idle)
		firsts := []*first{p.serve(t, wire.Build, timer), p.serve(t, wire.Helper, timer)}
		eventually(t, func() bool { return exists(wire.Socket(p.runDir(), wire.Helper)) })
		results := make([]wire.ClaimResult, 6)
		var claims sync.WaitGroup
		for i := range results {
			delay := time.Duration(idle-20+random.IntN(40)) * time.Millisecond
			claims.Go(func() {
				<-time.After(delay)
				results[i], _ = p.claim(t, wire.Build, fmt.Sprint(i))
			})
		}
		claims.Wait()
		winners := 0
		for i, result := range results {
			switch result.Result {
			case "claimed":
				winners++
				require.Equal(t, fmt.Sprint(i), result.Job)
			case "other", "expired":
				require.Equal(t, results[0].Result == "expired", result.Result == "expired", "%+v", results)
			default:
				require.FailNow(t, "no result", "%+v", results)
			}
		}
		if winners == 0 {
			outcomes["expired"]++
			for _, f := range firsts {
				require.Equal(t, wire.ExitOK, f.code(t))
			}
			continue
		}
		outcomes["claimed"]++
		require.Equal(t, 1, winners, "%+v", results)
		for _, role := range []wire.Role{wire.Build, wire.Helper} {
			out, _ := p.script(t, role, "a", "echo lives")
			require.Equal(t, "lives\n", out)
		}
	}
	t.Logf("%v", outcomes)
}

func TestAbandon(t *testing.T) {
	t.Parallel() // it waits more than it works
	p := newPod(t)
	firsts := []*first{}
	for _, role := range []wire.Role{wire.Build, wire.Helper} {
		firsts = append(firsts, p.serve(t, role, wire.EnvAbandonTime+"=4s"))
		eventually(t, func() bool { return exists(wire.Socket(p.runDir(), role)) })
	}
	p.claim(t, wire.Build, "1")
	pidFile := filepath.Join(p.dir, "pid")
	script := "echo $$ > " + pidFile + "; echo up; sleep 9; echo still; sleep 60"
	s := p.begin(t, wire.Build, "a", script, 0)
	// A driver that is attached to one container keeps both, however quiet the script.
	s.until("still\n")
	for _, f := range firsts {
		require.True(t, f.running())
	}
	s.cut()
	for _, f := range firsts {
		require.Equal(t, wire.ExitAbandoned, f.code(t))
		require.Contains(t, f.log.String(), "abandoned: no driver was attached for 4s")
	}
	require.False(t, alive(readPid(t, pidFile)))
}

// Jobs remove what they find; that must not look like a lost driver.
func TestAJobThatRemovesTheMarkIsNotAbandoned(t *testing.T) {
	t.Parallel() // it waits more than it works
	p := newPod(t)
	var firsts []*first
	for _, role := range []wire.Role{wire.Build, wire.Helper} {
		firsts = append(firsts, p.serve(t, role, wire.EnvAbandonTime+"=4s"))
		eventually(t, func() bool { return exists(wire.Socket(p.runDir(), role)) })
	}
	p.claim(t, wire.Build, "1")
	// PID 1 may just be renewing the mark when the folder goes.
	out, exit := p.script(t, wire.Build, "a", fmt.Sprintf("rm -f %[1]s/attached %[1]s/claim; sleep 6; until rm -rf %[1]s; do :; done 2>/dev/null; sleep 6; echo end", p.runDir()))
	require.Equal(t, "end\n", out)
	require.Zero(t, exit.Code)
	for _, f := range firsts {
		require.True(t, f.running())
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		code := run([]string{wire.CommandInstall, "--dir", dir}, nil, streams{err: os.Stderr})
		require.Equal(t, wire.ExitOK, code)
	}
	info, err := os.Stat(filepath.Join(dir, "bin", "entrypoint"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	names, err := os.ReadDir(filepath.Join(dir, "bin"))
	require.NoError(t, err)
	require.Len(t, names, 1)
}

func TestServeRefusesBadSettings(t *testing.T) {
	p := newPod(t)
	f := p.serve(t, wire.Build, wire.EnvIdleTime+"=soon", wire.EnvAbandonTime+"=never")
	require.Equal(t, wire.ExitError, f.code(t))
	require.Contains(t, f.log.String(), `IDLECOUNT_IDLE_TIME="soon"`)
	require.Contains(t, f.log.String(), `IDLECOUNT_ABANDON_TIME="never"`)
}

// A relay whose PID 1 never comes says so in the driver's language.
func TestRunWithoutPID1(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	s := p.open(t, wire.Build, "a")
	failure := s.failure()
	require.Contains(t, failure.Message, "PID 1, which doesn't listen")
	require.True(t, failure.Retry)
	require.Error(t, s.cmd.Wait())
}
