package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
)

// TestPrepareRefusesWhatTheRunnerDoesNotAllow: before anything is asked of the cluster, for there is no client here.
func TestPrepareRefusesWhatTheRunnerDoesNotAllow(t *testing.T) {
	var said []string
	where := target{
		say: func(line string) { said = append(said, line) },
		runner: config.Runner{
			Path: "runners[0]", Token: "glrt-fakefakef", BuildsDir: "/builds", CacheDir: "/cache",
			Kubernetes: config.Kubernetes{
				Namespace: "ci", Image: "alpine:3.22", HelperImage: "helper:1",
				AllowedImages: []string{"alpine:*"}, AllowedServices: []string{"postgres:*"}, AllowedPullPolicies: []string{"always"},
			},
		},
	}
	for field, response := range map[string]string{
		"image: ":       `{"id": 7, "image": {"name": "debian:13"}}`,
		"services[0]: ": `{"id": 7, "services": [{"name": "redis:8"}]}`,
	} {
		file := filepath.Join(t.TempDir(), "response.json")
		require.NoError(t, os.WriteFile(file, []byte(response), 0o600))
		err := prepare(t.Context(), where, job.Env{"JOB_RESPONSE_FILE": file})
		require.ErrorContains(t, err, field+"the runner doesn't allow the image")
		require.Equal(t, 81, exitCode(job.Env{"BUILD_FAILURE_EXIT_CODE": "81"}, err), "the job is to blame, and isn't tried again")
	}
	require.Empty(t, said)
}
