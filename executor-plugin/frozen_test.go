package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
)

// A job must end with the settings that it began with, whatever becomes of config.toml meanwhile.
func TestAJobKeepsTheSettingsItBeganWith(t *testing.T) {
	full, err := os.ReadFile("../config/testdata/valid-everything.toml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(file, full, 0o600))
	cfg, err := config.Load([]string{file})
	require.NoError(t, err)
	want := cfg.Runners[0]
	env := job.Env{"CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN": want.ShortToken()}

	var out bytes.Buffer
	got, err := runnerOf(Call{Stage: stageConfig, Files: []string{file}, Runner: want.Name}, env)
	require.NoError(t, err)
	require.NoError(t, configure(got, &out))
	var settings settings
	require.NoError(t, json.Unmarshal(out.Bytes(), &settings))
	compressed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(settings.JobEnv[runnerVariable])))
	require.NoError(t, err)
	frozen, err := io.ReadAll(compressed)
	require.NoError(t, err)
	require.Contains(t, string(frozen), want.TokenName())
	require.NotContains(t, out.String()+string(frozen), want.Token, "the config stage prints no token")

	// In the job's middle somebody breaks the file.
	require.NoError(t, os.WriteFile(file, []byte("[[runners"), 0o600))
	call := Call{Stage: stageRun, Files: []string{file}, Runner: want.Name}
	_, err = runnerOf(call, env)
	require.Error(t, err, "without what the config stage left, the file is read")

	maps.Copy(env, settings.JobEnv)
	got, err = runnerOf(call, env)
	require.NoError(t, err)
	require.Equal(t, want.ShortToken(), got.ShortToken())
	got.Token = want.Token
	require.Equal(t, want, got, "nothing gets lost between the stages")

	// The variable of another runner isn't ours.
	env["CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN"] = "another"
	_, err = runnerOf(call, env)
	require.Error(t, err)
}

// GitLab Runner hands job_env on in the environment, where nothing longer than 128 KiB can be.
func TestTheSettingsOfALargeRunnerAreHandedOn(t *testing.T) {
	r := config.Runner{Name: "ci", Token: "glrt-abcdefghijkl"}
	for i := range 2500 {
		r.Kubernetes.IdleImages = append(r.Kubernetes.IdleImages, fmt.Sprintf("registry.example.com/group/project/image-%d:v1.%d", i, i))
	}
	frozen, err := freeze(r)
	require.NoError(t, err)
	got, ok, err := thaw(job.Env{runnerVariable: frozen, "CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN": "abcdefghi"}, "ci")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, r.Kubernetes.IdleImages, got.Kubernetes.IdleImages)

	for range 10000 {
		r.Kubernetes.IdleImages = append(r.Kubernetes.IdleImages, rand.Text())
	}
	_, err = freeze(r)
	require.ErrorContains(t, err, "too large to be handed on")
}

// A job may set any variable. What it can do with CI_RUNNER_SHORT_TOKEN is to fail.
func TestAJobCannotChooseItsRunner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	entry := func(name, token, more string) string {
		return fmt.Sprintf("[[runners]]\nname = %q\nurl = \"https://gitlab.example.com\"\ntoken = %q\nexecutor = \"custom\"\n[runners.kubernetes]\nimage = \"alpine:3.22\"\n%s\n",
			name, token, more)
	}
	require.NoError(t, os.WriteFile(file, []byte(entry("plain", "glrt-plainplain1", "")+entry("mighty", "glrt-mightymight", "privileged = true")), 0o600))
	call := Call{Stage: stageConfig, Files: []string{file}, Runner: "plain"}
	r, err := runnerOf(call, job.Env{"CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN": "plainplai"})
	require.NoError(t, err)
	require.Equal(t, "plain", r.Name)
	for _, stage := range []string{stageConfig, stagePrepare, stageRun, stageCleanup} {
		call.Stage = stage
		_, err = runnerOf(call, job.Env{"CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN": "mightymig"})
		require.ErrorContains(t, err, "another one", stage)
	}
	call.Runner = ""
	_, err = runnerOf(call, job.Env{"CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN": "plainplai"})
	require.ErrorContains(t, err, "say which one calls, with --runner NAME")
}
