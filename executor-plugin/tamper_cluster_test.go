package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/runner"
)

// What runs in the helper container, maybe as root, is out of the reach of a job's own user, and of its root.
func TestAJobCannotChangeTheEntrypoint(t *testing.T) {
	const tamper = `
		mv /idlecount/bin /idlecount/old && echo REACHED moved the binary
		mv /idlecount/run /idlecount/old && echo REACHED moved what the containers share
		mv /idlecount/run/helper /idlecount/run/old && echo REACHED moved the helper\'s folder
		rm -f /idlecount/bin/entrypoint && echo REACHED removed the binary
		echo '#!/bin/sh' > /idlecount/bin/entrypoint && echo REACHED wrote the binary
		rm -f /idlecount/run/helper.sock && echo REACHED removed the socket
		test -x /idlecount/bin/entrypoint && echo the binary is there`
	t.Run("a user", func(t *testing.T) {
		g := newGround(t)
		job := script(tamper)
		job.Image = g.images["job-nonroot"]
		result := g.run(t, job)
		require.Equal(t, runner.Success, result.Status)
		require.NotContains(t, string(result.Output("build_script")), "REACHED")
		require.Contains(t, string(result.Output("build_script")), "the binary is there")
	})
	t.Run("root", func(t *testing.T) {
		g := newGround(t)
		g.idle(t, 1)
		job := script("set +e; rm -rf /idlecount; mv /idlecount/bin /idlecount/old; (echo > /idlecount/bin/entrypoint); true")
		job.AfterScript = []string{"echo after"}
		result := g.run(t, job)
		require.Equal(t, runner.Success, result.Status)
		require.Contains(t, string(result.Output("after_script")), "after")
		call, _ := result.Call("cleanup_file_variables")
		require.Zero(t, call.ExitCode)
	})
}

// A privileged job can take away what its container is entered by. It has done that to itself, and is told so at once.
func TestAJobThatRemovesTheEntrypointIsToldSo(t *testing.T) {
	g := newGround(t, "privileged = true") // its scripts come by exec
	g.idle(t, 1)
	job := script("umount -l /idlecount/bin || rm -rf /idlecount/bin", "test ! -e /idlecount/bin/entrypoint")
	job.AfterScript = []string{"echo after"}
	result := g.run(t, job)
	require.Less(t, result.End.Sub(result.Start), time.Minute)
	said := string(result.Output("after_script"))
	require.Contains(t, said, "container build can't start /idlecount/bin/entrypoint any more")
	require.NotContains(t, said, "goes on meanwhile")
	call, ok := result.Call("after_script")
	require.True(t, ok)
	require.Equal(t, 1, call.ExitCode, "a failure of the job: it does the same wherever it runs")
}

// PID 1 of the helper container can't be asked: its socket is gone.
func TestAJobThatRemovesTheSocketsIsToldSo(t *testing.T) {
	g := newGround(t, "privileged = true")
	g.idle(t, 1)
	result := g.run(t, script("rm -rf /idlecount/run/*"))
	require.Less(t, result.End.Sub(result.Start), 3*time.Minute)
	require.Contains(t, string(result.Log), "helper.sock")
	require.NotContains(t, string(result.Log), "goes on meanwhile")
}
