package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
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
	got, err := runnerOf(Call{Stage: stageConfig, Files: []string{file}}, env)
	require.NoError(t, err)
	require.NoError(t, configure(got, &out))
	var settings settings
	require.NoError(t, json.Unmarshal(out.Bytes(), &settings))
	require.NotContains(t, out.String(), want.Token, "the config stage prints no token")

	// In the job's middle somebody breaks the file.
	require.NoError(t, os.WriteFile(file, []byte("[[runners"), 0o600))
	call := Call{Stage: stageRun, Files: []string{file}}
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
