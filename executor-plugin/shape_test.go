package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/factory"
)

// A job that brings nothing of its own meets the pool of its image; one that brings a service does not.
func TestWhichRecordedJobsMeetThePoolOfTheirImage(t *testing.T) {
	runner := config.Runner{
		Path: "runners[0]", Token: "glrt-fakefakef", BuildsDir: "/builds", CacheDir: "/cache",
		Kubernetes: config.Kubernetes{Namespace: "ci", Image: "alpine:3.20", HelperImage: "helper:1"},
	}
	pool, err := factory.ShapeOf(runner, factory.Job{Image: "alpine:3.20"})
	require.NoError(t, err)
	for name, differs := range map[string]string{"job-101": "services", "job-102": "none", "job-106": "none", "job-107": "none"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join("job", "testdata", name)
			data, err := os.ReadFile(filepath.Join(folder, "prepare.env0"))
			require.NoError(t, err)
			env := job.Environ(strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"))
			env["JOB_RESPONSE_FILE"] = filepath.Join(folder, "response.json")
			j, err := job.Read(env)
			require.NoError(t, err)
			shape, err := factory.ShapeOf(runner, j.Shape)
			require.NoError(t, err)
			require.Equal(t, differs, factory.Differs(pool, shape).String())
			require.Equal(t, differs == "none", pool.Hash() == shape.Hash())
		})
	}
}
