package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/factory"
)

// A stage ends in one of four ways: well, with a script that failed, with a job that can't be run whoever tries
// (*jobError, *factory.JobError), or with any other error, which is not the job's fault and may be gone at the next try.

// scriptError is a script that ended with another exit code than 0.
type scriptError struct{ code int }

func (e *scriptError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// jobError is an error that the job's author has to mend; GitLab Runner doesn't try again.
type jobError struct{ err error }

func (e *jobError) Error() string { return e.err.Error() }
func (e *jobError) Unwrap() error { return e.err }

// Exit codes where GitLab Runner names none.
const (
	defaultBuildFailure  = 1
	defaultSystemFailure = 2
)

// exitCode is the code by which GitLab Runner tells a failed job (BUILD_FAILURE_EXIT_CODE) from a failed system
// (SYSTEM_FAILURE_EXIT_CODE).
func exitCode(env job.Env, err error) int {
	if err == nil {
		return 0
	}
	_, script := errors.AsType[*scriptError](err)
	_, asked := errors.AsType[*jobError](err)
	_, shape := errors.AsType[*factory.JobError](err)
	if script || asked || shape {
		return codeOf(env["BUILD_FAILURE_EXIT_CODE"], defaultBuildFailure)
	}
	return codeOf(env["SYSTEM_FAILURE_EXIT_CODE"], defaultSystemFailure)
}

func codeOf(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 256 {
		return n
	}
	return otherwise
}

// hand gives a script's own exit code to GitLab Runner, which shows it to the user and to retry:exit_codes.
func hand(env job.Env, code int) error {
	path := env["BUILD_EXIT_CODE_FILE"]
	if path == "" {
		return nil // a runner that doesn't ask
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(code)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the script's exit code %d for GitLab Runner: %w", code, err)
	}
	return nil
}
