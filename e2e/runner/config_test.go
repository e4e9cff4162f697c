package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const configToml = `
concurrent = 4
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-t1_abcdefghijklmnop"
  executor = "custom"
  builds_dir = "/b"
  environment = ["A=1"]
  [runners.feature_flags]
    FF_TIMESTAMPS = false
  [runners.custom]
    config_exec = "idlecount-executor"
    config_args = ["config"]
    config_exec_timeout = 7
    run_exec = "idlecount-executor"
    run_args = ["--x", "run"]
    graceful_kill_timeout = -1
  [runners.kubernetes]
    idle_count = 2
[[runners]]
  name = "other"
  executor = "kubernetes"
`

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(file, []byte(configToml), 0o600))
	got, err := Load(file, "ci")
	require.NoError(t, err)
	require.Equal(t, Runner{Name: "ci", URL: "https://gitlab.example.com", Token: "glrt-t1_abcdefghijklmnop", Executor: "custom", BuildsDir: "/b",
		Environment: []string{"A=1"}, FeatureFlags: map[string]bool{"FF_TIMESTAMPS": false},
		Custom: Custom{ConfigExec: "idlecount-executor", ConfigArgs: []string{"config"}, ConfigExecTimeout: 7, RunExec: "idlecount-executor",
			RunArgs: []string{"--x", "run"}, GracefulKillTimeout: -1}}, got)

	for name, want := range map[string]string{"": "say which", "nobody": `no [[runners]] entry "nobody"`, "other": `the executor "kubernetes"`} {
		_, err := Load(file, name)
		require.ErrorContains(t, err, want)
	}
	_, err = Load(file+".none", "")
	require.ErrorContains(t, err, "no such file")
}

// The rules of GitLab Runner 19: known prefixes go, nine characters stay.
func TestShortToken(t *testing.T) {
	for token, want := range map[string]string{
		"glrt-abcdefghijkl":      "abcdefghi",
		"glrt-t1_abcdefghijkl":   "abcdefghi",
		"t3_abcdefghijkl":        "abcdefghi",
		"glrtr-abcdefghijkl":     "abcdefghi",
		"GR1348941abcdefghijkl":  "abcdefghi",
		"abcdefghijkl":           "abcdefghi",
		"short":                  "short",
		"":                       "",
		"glrt-t4_abcdefghijklmn": "t4_abcdef",
	} {
		require.Equal(t, want, Runner{Token: token}.ShortToken(), token)
	}
}

func TestRunnerEnvironmentAndFlagsReachJobs(t *testing.T) {
	r := newRecorder(t, nil)
	r.Environment, r.FeatureFlags = []string{"FROM_RUNNER=$CI_JOB_ID"}, map[string]bool{"FF_TIMESTAMPS": false}
	r.Run(t.Context(), simple(), nil)
	for _, got := range r.records(t) {
		require.Contains(t, got.Env, "CUSTOM_ENV_FROM_RUNNER=1")
		require.Contains(t, got.Env, "CUSTOM_ENV_FF_TIMESTAMPS=false")
	}
}

func TestAnEntryIsOneThatLoadReads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	entry := Entry{
		Name: "ci", Token: "glrt-abcdefghijkl", Driver: "/bin/idlecount-executor", ConfigFile: file,
		Kubernetes: "namespace = \"ci\"\nidle_count = 2 # idle pods per image\n",
	}
	require.NoError(t, os.WriteFile(file, []byte(entry.TOML()), 0o600))
	r, err := Load(file, "ci")
	require.NoError(t, err)
	require.Equal(t, "abcdefghi", r.ShortToken())
	require.Equal(t, "/bin/idlecount-executor", r.Custom.CleanupExec)
	require.Equal(t, []string{"--config", file, "cleanup"}, r.Custom.CleanupArgs)
}
