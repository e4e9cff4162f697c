package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Status is how a job ended.
type Status string

// The ends of a job.
const (
	Success  Status = "success"
	Failed   Status = "failed"
	Canceled Status = "canceled"
)

// FailureReason is why, in GitLab's words; empty for a success.
type FailureReason string

// The reasons that a custom executor's job can have.
const (
	ScriptFailure       FailureReason = "script_failure"        // the job's own fault; ExitCode says more
	RunnerSystemFailure FailureReason = "runner_system_failure" // not the job's fault: GitLab may run it again
	JobExecutionTimeout FailureReason = "job_execution_timeout"
	JobCanceled         FailureReason = "job_canceled"
)

// Result is a job that has ended.
type Result struct {
	Status        Status
	FailureReason FailureReason
	ExitCode      int    // with ScriptFailure, the script's exit code as the driver told it
	Err           error  // what stands after "Job failed:" in the log; nil for a success
	Log           []byte // the whole job log
	Calls         []Call // every call of the driver, in order
	Start, End    time.Time
}

// Call is one call of the driver.
type Call struct {
	Stage    string // "config", "prepare", "cleanup", or a sub-stage of run such as "build_script"
	Try      int    // which preparation this belongs to, from 1
	Args     []string
	Start    time.Time
	First    time.Time // when the first byte of its output came; zero where there was none
	End      time.Time
	ExitCode int   // of the driver; -1 where a signal ended it or it didn't start
	Err      error // what GitLab Runner makes of it

	from, to int // its part of the log
}

// Call is the last call of a stage; false where there was none.
func (r Result) Call(stage string) (Call, bool) {
	for _, call := range slices.Backward(r.Calls) {
		if call.Stage == stage {
			return call, true
		}
	}
	return Call{}, false
}

// Output is the part of the log that the last call of a stage wrote.
func (r Result) Output(stage string) []byte {
	call, ok := r.Call(stage)
	if !ok {
		return nil
	}
	return r.Log[call.from:call.to]
}

// Stages are the stages in the order in which they were called.
func (r Result) Stages() []string {
	stages := make([]string, 0, len(r.Calls))
	for _, call := range r.Calls {
		stages = append(stages, call.Stage)
	}
	return stages
}

// ErrAborted, as the cause of a context's end, aborts the job at once, without after_script or anything later but cleanup:
// what GitLab Runner does when the server says that the job is over. Every other end of the context cancels the job as a
// user does: the script is stopped, after_script and the stages after it still run.
var ErrAborted = errors.New("job aborted")

// Errors inside the package, by which a job's end is told.
var (
	errCanceled      = errors.New("canceled")
	errScriptTimeout = errors.New("script took longer than RUNNER_SCRIPT_TIMEOUT")
	errJobTimeout    = errors.New("execution took longer than the job's timeout")
)

// buildError is a failure that is the job's own: GitLab Runner doesn't try it again.
type buildError struct {
	code  int
	cause error
}

func (e *buildError) Error() string { return e.cause.Error() }
func (e *buildError) Unwrap() error { return e.cause }

// unknownExit is a driver's end that the protocol doesn't know.
type unknownExit struct {
	code  int
	cause error
}

func (e *unknownExit) Error() string {
	return fmt.Sprintf("unknown Custom executor executable exit code %d; executable execution terminated with: %v", e.code, e.cause)
}
func (e *unknownExit) Unwrap() error { return e.cause }

// jobStatus is what CI_JOB_STATUS says after the script.
func jobStatus(err error) string {
	switch {
	case err == nil:
		return "success"
	case errors.Is(err, errCanceled), errors.Is(err, ErrAborted):
		return "canceled"
	case errors.Is(err, errScriptTimeout), errors.Is(err, errJobTimeout):
		return "timedout"
	default:
		return "failed"
	}
}

// outcome says how a job ended with err.
func outcome(err error) (Status, FailureReason, int) {
	var build *buildError
	switch {
	case err == nil:
		return Success, "", 0
	case errors.Is(err, errCanceled), errors.Is(err, ErrAborted):
		return Canceled, JobCanceled, 0
	case errors.Is(err, errScriptTimeout), errors.Is(err, errJobTimeout):
		return Failed, JobExecutionTimeout, 0
	case errors.As(err, &build):
		return Failed, ScriptFailure, build.code
	default:
		return Failed, RunnerSystemFailure, 0
	}
}
