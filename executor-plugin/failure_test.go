package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/factory"
)

func TestExitCodes(t *testing.T) {
	runner := job.Env{"BUILD_FAILURE_EXIT_CODE": "81", "SYSTEM_FAILURE_EXIT_CODE": "82"}
	for sentence, test := range map[string]struct {
		err  error
		env  job.Env
		want int
	}{
		"all is well":       {nil, runner, 0},
		"the script failed": {&scriptError{3}, runner, 81},
		"the script failed, and so did the hand-over": {errors.Join(&scriptError{3}, errors.New("disk full")), runner, 81},
		"the job asks for what can't be had":          {fmt.Errorf("x: %w", &jobError{errors.New("no image")}), runner, 81},
		"the job's shape is refused":                  {fmt.Errorf("x: %w", &factory.JobError{Field: "services[0].alias"}), runner, 81},
		"anything else":                               {errors.New("x"), runner, 82},
		"a runner that names no codes":                {&scriptError{3}, nil, 1},
		"a runner that names no codes, system":        {errors.New("x"), nil, 2},
		"codes that are none":                         {errors.New("x"), job.Env{"SYSTEM_FAILURE_EXIT_CODE": "0"}, 2},
	} {
		t.Run(sentence, func(t *testing.T) { require.Equal(t, test.want, exitCode(test.env, test.err)) })
	}
}

func TestHandGivesTheScriptsCode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "build_exit_code")
	require.NoError(t, hand(job.Env{"BUILD_EXIT_CODE_FILE": file}, 42))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "42\n", string(text))
	require.NoError(t, hand(nil, 42), "a runner that doesn't ask")
}

func TestPlacement(t *testing.T) {
	for part, want := range map[string]string{
		"prepare_script": "helper", "get_sources": "helper", "clear_worktree": "helper", "restore_cache": "helper", "download_artifacts": "helper",
		"build_script": "build", "step_release": "build", "step_script": "build", "after_script": "build",
		"archive_cache": "helper", "archive_cache_on_failure": "helper", "upload_artifacts_on_success": "helper",
		"upload_artifacts_on_failure": "helper", "cleanup_file_variables": "helper",
	} {
		require.EqualValues(t, want, placement(part), part)
	}
}
