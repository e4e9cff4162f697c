package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
