package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// How GitLab Runner tries again.
const (
	prepareTries    = 3
	prepareInterval = 3 * time.Second
	stageInterval   = 5 * time.Second
	stageFactor     = 1.5
)

// Work is one job as GitLab hands it out: a Job or a Recording.
type Work interface {
	payload(now moment) ([]byte, error)              // the content of JOB_RESPONSE_FILE
	variables(now moment) []Variable                 // in the order in which GitLab Runner has them
	script(stage string, now moment) (string, error) // empty where the stage has nothing to do
	steps() []string                                 // stages of the job's own steps but after_script, in order
	projectPath() string                             // group/project
	timeout() time.Duration
	concurrentProject() int
}

// moment is what is known of a job's surroundings at some point of its life.
type moment struct {
	runner      Runner
	buildsDir   string
	cacheDir    string
	projectDir  string
	tempDir     string // of the project, beside projectDir
	hostname    string // what the config stage said
	status      string // CI_JOB_STATUS
	runnerShell string
}

// execution is a job that is being worked on.
type execution struct {
	runner Runner
	work   Work
	trace  *trace
	now    moment
	calls  []Call

	// Of the current preparation.
	try    int
	dir    string // working directory of the driver
	jobEnv []string
}

// Run works on a job to its end. live, which may be nil, gets the log as it comes. When ctx ends, the job is canceled as a
// user would do it, or aborted where the cause is ErrAborted; Run returns after the last call of the driver either way.
func (r Runner) Run(ctx context.Context, work Work, live io.Writer) Result {
	e := &execution{runner: r, work: work, trace: &trace{live: live}}
	e.now = moment{runner: r, tempDir: ".tmp", status: "running"}
	start := time.Now()

	job, cancelJob := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelJob(nil)
	job, stopTimer := context.WithTimeoutCause(job, work.timeout(), errJobTimeout)
	defer stopTimer()
	// Until the script begins, a cancel ends the job as a whole; userScripts puts the script's own context here.
	var cancel atomic.Pointer[context.CancelCauseFunc]
	cancel.Store(&cancelJob)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrAborted) {
			cancelJob(ErrAborted)
			return
		}
		(*cancel.Load())(errCanceled)
	})
	defer stop()

	err := e.job(job, &cancel)
	result := Result{Err: err, Calls: e.calls, Start: start}
	result.Status, result.FailureReason, result.ExitCode = outcome(err)
	switch {
	case err == nil:
		e.trace.say("Job succeeded")
	case result.FailureReason == RunnerSystemFailure:
		e.trace.say("ERROR: Job failed (system failure): %v", err)
	default:
		e.trace.say("ERROR: Job failed: %v", err)
	}
	result.Log, result.End = e.trace.log.Bytes(), time.Now()
	return result
}

// job is everything from the first preparation to the last cleanup.
func (e *execution) job(ctx context.Context, cancel *atomic.Pointer[context.CancelCauseFunc]) error {
	if e.runner.Custom.RunExec == "" {
		return &buildError{buildFailureCode, errors.New("custom executor is missing RunExec")}
	}
	e.trace.say("Preparing the \"custom\" executor")
	if err := e.prepare(ctx); err != nil {
		return err
	}
	defer e.cleanup()
	err := e.scripts(ctx, cancel)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// prepare tries config and prepare until both were good. A failure of the job's own is not tried again.
func (e *execution) prepare(ctx context.Context) error {
	interval := or(e.runner.PrepareInterval, prepareInterval)
	var err error
	for e.try = 1; e.try <= prepareTries; e.try++ {
		if err = e.prepareOnce(ctx); err == nil {
			return nil
		}
		e.cleanup()
		if _, isBuild := errors.AsType[*buildError](err); isBuild {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.trace.say("ERROR: Preparation failed: %v\nWill be retried in %v ...", err, interval)
		time.Sleep(interval) // after the last try, too, and whether or not the job is canceled meanwhile
	}
	return err
}

func (e *execution) prepareOnce(ctx context.Context) error {
	e.jobEnv, e.dir = nil, ""
	dir, err := os.MkdirTemp(e.runner.TempDir, "custom-executor")
	if err != nil {
		return err
	}
	e.dir = dir
	payload, err := e.work.payload(e.now)
	if err != nil {
		return err
	}
	if err := os.WriteFile(e.responseFile(), payload, 0o600); err != nil {
		return fmt.Errorf("write job response file: %w", err)
	}
	if err := e.config(ctx); err != nil {
		return err
	}
	custom := e.runner.Custom
	if custom.PrepareExec == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, seconds(custom.PrepareExecTimeout, 3600))
	defer stop()
	return e.call(ctx, "prepare", custom.PrepareExec, custom.PrepareArgs, e.trace, e.trace)
}

// scripts runs the stages of a job that was prepared.
func (e *execution) scripts(ctx context.Context, cancel *atomic.Pointer[context.CancelCauseFunc]) error {
	if err := e.stage(ctx, "prepare_script"); err != nil {
		return fmt.Errorf("prepare environment: %w", err)
	}
	err := e.attempts(ctx, "get_sources", "GET_SOURCES_ATTEMPTS")
	if err == nil {
		err = e.attempts(ctx, "restore_cache", "RESTORE_CACHE_ATTEMPTS")
	}
	if err == nil {
		err = e.attempts(ctx, "download_artifacts", "ARTIFACT_DOWNLOAD_ATTEMPTS")
	}
	if err == nil {
		err = e.userScripts(ctx, cancel)
	}
	archive, upload := "archive_cache", "upload_artifacts_on_success"
	if err != nil {
		archive, upload = "archive_cache_on_failure", "upload_artifacts_on_failure"
	}
	archiveErr := e.stage(ctx, archive)
	uploadErr := e.stage(ctx, upload)
	if cleanupErr := e.stage(ctx, "cleanup_file_variables"); cleanupErr != nil {
		e.diagnose("cleanup_file_variables failed: %v", cleanupErr)
	}
	// The job's own failure hides those of what came after it.
	for _, err := range []error{err, archiveErr, uploadErr} {
		if err != nil {
			return err
		}
	}
	return nil
}

// userScripts runs the job's steps and after_script. A cancel from here on only stops the steps.
func (e *execution) userScripts(ctx context.Context, cancel *atomic.Pointer[context.CancelCauseFunc]) error {
	script, cancelScript := context.WithCancelCause(ctx)
	defer cancelScript(nil)
	if limit, ok := e.duration("RUNNER_SCRIPT_TIMEOUT"); ok {
		var stop context.CancelFunc
		script, stop = context.WithTimeoutCause(script, limit, errScriptTimeout)
		defer stop()
	}
	cancel.Store(&cancelScript)

	var err error
	for _, step := range e.work.steps() {
		if err = e.stage(script, step); err != nil {
			break
		}
	}
	if cause := context.Cause(script); ctx.Err() == nil && cause != nil {
		err = cause
		e.trace.say("WARNING: script %v", cause)
	}
	e.now.status = jobStatus(err)
	limit, ok := e.duration("RUNNER_AFTER_SCRIPT_TIMEOUT")
	if !ok {
		limit = 5 * time.Minute
	}
	after, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if afterErr := e.stage(after, "after_script"); afterErr != nil && ctx.Err() == nil {
		if e.variable("AFTER_SCRIPT_IGNORE_ERRORS") != "false" {
			e.trace.say("WARNING: after_script failed, but job will continue unaffected: %v", afterErr)
		} else if err == nil {
			err = afterErr
		}
	}
	return err
}

// variable is the value of a job's variable.
func (e *execution) variable(key string) string {
	var value string
	for _, v := range e.work.variables(e.now) {
		if v.Key == key {
			value = v.Value
		}
	}
	return value
}

// duration is a variable that holds a Go duration; a malformed or negative one is as good as none.
func (e *execution) duration(key string) (time.Duration, bool) {
	d, err := time.ParseDuration(strings.TrimSpace(e.variable(key)))
	return d, err == nil && d > 0
}

// diagnose writes to GitLab Runner's own log.
func (e *execution) diagnose(format string, args ...any) {
	if e.runner.Diagnostics != nil {
		fmt.Fprintf(e.runner.Diagnostics, format+"\n", args...)
	}
}
