package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/images"
)

// setup writes a config.toml whose driver runs scripts with sh on this machine.
func setup(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	driver := filepath.Join(dir, "driver.sh")
	require.NoError(t, os.WriteFile(driver, []byte("#!/bin/sh\nbash < \"$1\" || { echo $? > $BUILD_EXIT_CODE_FILE; exit 1; }\n"), 0o700))
	config := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(config, []byte(`[[runners]]
name = "ci"
executor = "custom"
builds_dir = "`+dir+`"
cache_dir = "`+dir+`"
[runners.custom]
run_exec = "`+driver+`"
`), 0o600))
	return config
}

// TestTheReadmesConfigurationRuns with the real driver, up to the pod: its `config_args` name no file, and the driver reads the one
// that runjob was given all the same, from wherever it is started.
func TestTheReadmesConfigurationRuns(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, block)
	require.Contains(t, string(block[1]), `config_args  = ["config"]`)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.toml"), block[1], 0o600))
	binaries, err := images.BuildBinaries(t.Context(), t.TempDir(), images.Idlecount)
	require.NoError(t, err)
	// A stand-in under the driver's name: the first stage is the real driver's, the next one ends the job.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "idlecount-executor"), []byte(`#!/bin/sh
case $1 in
config) exec `+binaries.Executor+` "$@" ;;
prepare) echo "the file is $CONFIG_FILE"; exit $BUILD_FAILURE_EXIT_CODE ;;
esac
`), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("CONFIG_FILE", "")
	t.Chdir(dir)
	var stdout, stderr bytes.Buffer
	code, err := run(t.Context(), []string{"--config", "config.toml", "--script", "true"}, &stdout, &stderr)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Contains(t, stdout.String(), "Using Custom executor with driver idlecount", "%s", &stderr)
	require.Contains(t, stdout.String(), "the file is "+filepath.Join(dir, "config.toml"))
}

func TestRunJob(t *testing.T) {
	config := setup(t)
	for sentence, test := range map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"a good job":        {[]string{"--config", config, "--variable", "A=b=c", "--script", "echo got $A", "--after-script", "echo after"}, 0, "got b=c\n", ""},
		"a job that fails":  {[]string{"--config", config, "--script", "exit 3"}, 1, "Job failed: exit status 3", ""},
		"times are told":    {[]string{"--config", config, "--times", "--script", "true"}, 0, "Job succeeded", "build_script"},
		"no script":         {[]string{"--config", config}, 2, "", ""},
		"no such file":      {[]string{"--config", config + "x", "--script", "true"}, 2, "", ""},
		"no such runner":    {[]string{"--config", config, "--runner", "x", "--script", "true"}, 2, "", ""},
		"an unknown flag":   {[]string{"--conf", config}, 2, "", "flag provided but not defined"},
		"a broken variable": {[]string{"--variable", "A"}, 2, "", "is not NAME=value"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code, _ := run(t.Context(), test.args, &stdout, &stderr)
			require.Equal(t, test.code, code, "%s%s", &stdout, &stderr)
			require.Contains(t, stdout.String(), test.out)
			require.Contains(t, stderr.String(), test.err)
		})
	}
}
