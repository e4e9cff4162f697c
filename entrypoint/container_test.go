//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestAnyImage(t *testing.T) {
	cases := map[string]struct {
		image image
		shell string
	}{
		"busybox alone":              {image{}, "/bin/sh"},
		"dash":                       {image{shell: "/bin/dash"}, "/bin/sh"},
		"bash beside busybox":        {image{bash: true}, "/bin/bash"},
		"a user who is not root":     {image{user: 1000}, "/bin/sh"},
		"a root that is read-only":   {image{readOnly: true}, "/bin/sh"},
		"both, with bash":            {image{bash: true, user: 1000, readOnly: true}, "/bin/bash"},
		"no variable, not even PATH": {image{env: []string{"ONLY=1"}}, "/bin/sh"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := bootPod(t, map[wire.Role]image{wire.Build: c.image})
			result, _ := p.claim(t, wire.Build, "1")
			require.Equal(t, c.shell, result.Shell)
			testScripts(t, p.pod, c.shell)
		})
	}
}

func TestNoShell(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {shell: "none"}})
	result, code := p.claim(t, wire.Build, "1")
	require.Equal(t, wire.ExitOK, code)
	require.Empty(t, result.Shell)
	s := p.open(t, wire.Build, "a")
	s.send(header("a", "echo hi", 0), "echo hi")
	failure := s.failure()
	require.Contains(t, failure.Message, "there is no shell in this container")
	require.False(t, failure.Retry)
}

func TestThePIDOfPID1(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {}})
	out, _ := p.script(t, wire.Build, "a", "cat /proc/1/comm; echo $PPID; pwd")
	require.Equal(t, "entrypoint\n1\n/\n", out)
	out, _ = p.script(t, wire.Build, "b", "\n\nno-such-command; echo $0")
	require.Contains(t, out, "/idlecount/run/build/script: line 3: no-such-command")
	require.Contains(t, out, "\n/idlecount/run/build/script\n")
	_, exit := p.script(t, wire.Build, "c", "rm -r /idlecount/run/build; exit 2")
	require.Equal(t, 2, exit.Code)
	out, _ = p.script(t, wire.Build, "d", "echo $0")
	require.Equal(t, "/proc/self/fd/3\n", out)
}

// A job may kill all that it can, also the process by which its driver follows it.
func TestAJobThatKillsEverything(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {}})
	s := p.open(t, wire.Build, "a")
	s.send(header("a", "echo up; kill -9 -1; exit 6", 0), "echo up; kill -9 -1; exit 6")
	for {
		if _, _, err := s.try(); err != nil {
			break
		}
	}
	s = p.begin(t, wire.Build, "a", "echo up; kill -9 -1; exit 6", 3)
	require.False(t, s.hello.Started)
	_, exit := s.rest()
	require.Equal(t, wire.Exit{Code: 6, Offset: 3}, exit)
}

// The containers of a pod share the folder of the sockets, maybe a user too, and must not command each other.
func TestTheOtherContainerIsRefused(t *testing.T) {
	for _, user := range []int{0, 1000} {
		p := bootPod(t, map[wire.Role]image{wire.Build: {user: user}, wire.Helper: {user: user}})
		cmd := p.command(t, wire.Build, wire.CommandRun, "--id", "a")
		cmd.Env = append(cmd.Env, wire.EnvRole+"=helper") // a job that takes the other role
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "is served by somebody else: the peer is in another container")

		// One that doesn't ask who is there is not heard either: all that it is told is where PID 1 listens for the driver.
		argv := []string{"--target", strconv.Itoa(p.firsts[wire.Build].cmd.Process.Pid), "--pid", os.Args[0]}
		cmd = exec.Command("nsenter", argv...)
		cmd.Env = []string{askEnv + "=" + wire.Socket(p.runDir(), wire.Helper)}
		out, err = cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.JSONEq(t, `{"port":0,"key":""}`, string(out))
		cmd = exec.Command("nsenter", "--target", strconv.Itoa(p.firsts[wire.Helper].cmd.Process.Pid), "--pid", os.Args[0])
		cmd.Env = []string{askEnv + "=" + wire.Socket(p.runDir(), wire.Helper)}
		out, err = cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.JSONEq(t, `{"message":""}`, string(out), "the same words are heard from inside")
	}
}

func TestHelper(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{
		wire.Build:  {user: 1000},
		wire.Helper: {files: []string{"usr/bin/gitlab-runner-helper"}},
	})
	out, _ := p.script(t, wire.Helper, "a", `umask; gitlab-runner artifacts-downloader 1; command -v gitlab-runner; mkdir /idlecount/x; touch /idlecount/x/f`)
	require.Equal(t, "0000\n/idlecount/run/helper/bin/gitlab-runner artifacts-downloader 1\n/idlecount/run/helper/bin/gitlab-runner\n", out)
	out, exit := p.script(t, wire.Build, "b", `umask; echo changed >> /idlecount/x/f && rm -r /idlecount/x; command -v gitlab-runner`)
	require.Equal(t, "0022\n", out)
	require.NotZero(t, exit.Code)
	require.NoDirExists(t, filepath.Join(p.dir, "x"))
}

func TestGitLabRunnerOfTheImageIsKept(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Helper: {files: []string{"usr/bin/gitlab-runner", "usr/bin/gitlab-runner-helper"}}})
	out, _ := p.script(t, wire.Helper, "a", `command -v gitlab-runner; echo $PATH`)
	require.Equal(t, "/usr/bin/gitlab-runner\n/usr/local/bin:/usr/bin:/bin\n", out)
}

func TestTerminationMessage(t *testing.T) {
	p := newContainers(t, map[wire.Role]image{wire.Build: {user: 1000, readOnly: true}, wire.Helper: {}})
	p.boot(t, wire.Build, wire.EnvIdleTime+"=10ms")
	p.boot(t, wire.Helper, wire.EnvIdleTime+"=10ms")
	for role, f := range p.firsts {
		require.Equal(t, wire.ExitOK, f.code(t))
		message, err := os.ReadFile(filepath.Join(p.roots[role], "dev/termination-log"))
		require.NoError(t, err)
		require.Equal(t, "expired: nobody claimed the pod for 10ms\n", string(message))
	}
}

// What an exec leaves behind becomes a child of PID 1 as well.
func TestOrphansOfAnExecAreReaped(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {}})
	out, err := p.inside(t, wire.Build, "sh", "-c", "(sleep 0.1 & echo $!)").CombinedOutput()
	require.NoError(t, err, "%s", out)
	pid := strings.TrimSpace(string(out))
	eventually(t, func() bool {
		out, _ := p.inside(t, wire.Build, "ls", "/proc").Output()
		return len(out) > 0 && !strings.Contains("\n"+string(out), "\n"+pid+"\n")
	})
}

// A cancel ends the job's processes, wherever they hide, and leaves alone what was exec'ed beside it.
func TestACancelSparesExecs(t *testing.T) {
	p := bootPod(t, map[wire.Role]image{wire.Build: {}})
	debug := p.inside(t, wire.Build, "sleep", "60")
	require.NoError(t, debug.Start())
	t.Cleanup(func() { _ = debug.Process.Kill(); _ = debug.Wait() })
	s := p.begin(t, wire.Build, "a", `trap '' TERM; (setsid sh -c 'trap "" TERM; while :; do sleep 60; done' &) ; echo up; while :; do sleep 60; done`, 0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "100ms"})
	_, exit := s.rest()
	require.Equal(t, 137, exit.Code)
	require.True(t, exit.Cancelled)
	out, err := p.inside(t, wire.Build, "ps", "-o", "pid,comm,args").Output()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(out), "sleep 60"), "%s", out)
	require.True(t, alive(debug.Process.Pid))
}
