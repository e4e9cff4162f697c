package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// driverConfig is what the config stage may print.
type driverConfig struct {
	BuildsDir         *string `json:"builds_dir"`
	CacheDir          *string `json:"cache_dir"`
	BuildsDirIsShared *bool   `json:"builds_dir_is_shared"`
	Hostname          *string `json:"hostname"`
	Driver            *struct {
		Name    *string `json:"name"`
		Version *string `json:"version"`
	} `json:"driver"`
	JobEnv map[string]string `json:"job_env"`
	Shell  *string           `json:"shell"`
}

// config calls the config stage and chooses the job's folders.
func (e *execution) config(ctx context.Context) error {
	var answer driverConfig
	custom := e.runner.Custom
	if custom.ConfigExec != "" {
		ctx, stop := context.WithTimeout(ctx, seconds(custom.ConfigExecTimeout, 3600))
		defer stop()
		var stdout bytes.Buffer
		if err := e.call(ctx, "config", custom.ConfigExec, custom.ConfigArgs, &stdout, e.trace); err != nil {
			return err
		}
		if stdout.Len() > 0 {
			if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
				return fmt.Errorf("error while parsing JSON output: %w", err)
			}
		}
	}
	e.trace.say("Using Custom executor%s...", driverName(answer))
	for key, value := range answer.JobEnv {
		e.jobEnv = append(e.jobEnv, key+"="+value)
	}
	return e.chooseFolders(answer)
}

func driverName(answer driverConfig) string {
	switch d := answer.Driver; {
	case d == nil || d.Name == nil:
		return ""
	case d.Version == nil:
		return " with driver " + *d.Name
	default:
		return " with driver " + *d.Name + " " + *d.Version
	}
}

// chooseFolders decides where the job's files are; a custom executor has no default for them.
func (e *execution) chooseFolders(answer driverConfig) error {
	now := moment{runner: e.runner, buildsDir: e.runner.BuildsDir, cacheDir: e.runner.CacheDir, status: e.now.status, runnerShell: e.runner.shell()}
	for to, value := range map[*string]*string{
		&now.buildsDir: answer.BuildsDir, &now.cacheDir: answer.CacheDir, &now.hostname: answer.Hostname, &now.runnerShell: answer.Shell,
	} {
		if value != nil {
			*to = *value
		}
	}
	if now.buildsDir == "" {
		return &buildError{buildFailureCode, errors.New("the builds_dir is not configured")}
	}
	if now.cacheDir == "" {
		return &buildError{buildFailureCode, errors.New("the cache_dir is not configured")}
	}
	now.projectDir = path.Join(now.buildsDir, e.work.projectPath())
	if answer.BuildsDirIsShared != nil && *answer.BuildsDirIsShared {
		now.projectDir = path.Join(now.buildsDir, e.runner.ShortToken(), strconv.Itoa(e.work.concurrentProject()), e.work.projectPath())
	}
	now.cacheDir = path.Join(now.cacheDir, e.work.projectPath())
	now.tempDir = now.projectDir + ".tmp"
	e.now = now
	return nil
}

// stage calls one sub-stage of run, where the job has something to do in it.
func (e *execution) stage(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	script, err := e.work.script(name, e.now)
	if err != nil || script == "" {
		return err
	}
	folder, err := os.MkdirTemp(e.dir, "script")
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "script")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		return err
	}
	e.trace.say("Executing %q stage", name)
	custom := e.runner.Custom
	args := slices.Concat(custom.RunArgs, []string{file, name})
	return e.call(ctx, name, custom.RunExec, args, e.trace, e.trace)
}

// attempts calls a stage as often as a variable of the job allows. Before the second attempt at the sources the worktree
// is cleared.
func (e *execution) attempts(ctx context.Context, name, variable string) error {
	limit, err := strconv.Atoi(e.variable(variable))
	if err != nil {
		limit = 1
	}
	if limit < 1 || limit > 10 {
		return fmt.Errorf("number of attempts out of the range [1, 10] for stage: %s", name)
	}
	pause := or(e.runner.StageInterval, stageInterval)
	for attempt := range limit {
		err = nil
		if attempt == 1 && name == "get_sources" {
			err = e.stage(ctx, "clear_worktree")
		}
		if err == nil {
			if err = e.stage(ctx, name); err == nil {
				return nil
			}
		}
		if attempt < limit-1 {
			e.trace.say("Retrying in %v", pause)
			time.Sleep(pause)
			pause = time.Duration(float64(pause) * stageFactor)
		}
	}
	return err
}

// cleanup calls the cleanup stage and removes the driver's folder. Nothing of it changes the job's end.
func (e *execution) cleanup() {
	custom := e.runner.Custom
	if e.dir == "" {
		return
	}
	defer func() { _ = os.RemoveAll(e.dir) }()
	if custom.CleanupExec == "" {
		return
	}
	// A context of its own: the job's may be what has ended.
	ctx, stop := context.WithTimeout(context.Background(), seconds(custom.CleanupExecTimeout, 3600))
	defer stop()
	output := &trace{}
	if err := e.call(ctx, "cleanup", custom.CleanupExec, custom.CleanupArgs, output, output); err != nil {
		e.diagnose("Cleanup script failed: %v", err)
	}
	if e.runner.Diagnostics != nil {
		_, _ = e.runner.Diagnostics.Write(output.log.Bytes())
	}
}

func (e *execution) responseFile() string { return filepath.Join(e.dir, "response.json") }

// call runs the driver once and notes how it went.
func (e *execution) call(ctx context.Context, stage, exec string, args []string, stdout, stderr io.Writer) error {
	exitCodeFile := filepath.Join(e.dir, "build_exit_code")
	env := e.runner.Environ
	if env == nil {
		env = os.Environ()
	}
	// The later of two of a name counts: job_env may hide the manager's variables, those of the job hide both.
	env = slices.Concat(env, []string{
		"TMPDIR=" + e.dir,
		"BUILD_FAILURE_EXIT_CODE=" + strconv.Itoa(buildFailureCode),
		"SYSTEM_FAILURE_EXIT_CODE=" + strconv.Itoa(systemFailureCode),
		"BUILD_EXIT_CODE_FILE=" + exitCodeFile,
		"JOB_RESPONSE_FILE=" + e.responseFile(),
	}, e.jobEnv)
	for _, v := range e.work.variables(e.now) {
		env = append(env, "CUSTOM_ENV_"+v.Key+"="+v.Value)
	}
	call := Call{Stage: stage, Try: e.try, Args: args, from: e.trace.mark()}
	c := command{
		path: exec, dir: e.dir, args: args, env: env, stdout: stdout, stderr: stderr, exitCodeFile: exitCodeFile,
		graceful: seconds(e.runner.Custom.GracefulKillTimeout, 600),
		force:    seconds(e.runner.Custom.ForceKillTimeout, 10),
		started: func(pid int) {
			if e.runner.Observe != nil {
				e.runner.Observe(stage, pid)
			}
		},
	}
	call.Start = time.Now()
	call.ExitCode, call.Err = c.run(ctx)
	call.End = time.Now()
	call.to, call.First = e.trace.taken()
	e.calls = append(e.calls, call)
	return call.Err
}
