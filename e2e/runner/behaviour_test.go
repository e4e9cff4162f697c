package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func simple() Job {
	return Job{ID: 1, Script: []string{"echo hi"}, AfterScript: []string{"echo after"},
		Cache:     []Cache{{Key: "k", Paths: []string{"out"}, When: "always"}},
		Artifacts: []Artifacts{{Name: "a", Paths: []string{"out"}, When: "always"}}}
}

const (
	begin      = "config prepare prepare_script get_sources restore_cache"
	endGood    = "archive_cache upload_artifacts_on_success cleanup_file_variables cleanup"
	endBad     = "archive_cache_on_failure upload_artifacts_on_failure cleanup_file_variables cleanup"
	oneTry     = "config prepare cleanup"
	threeTries = oneTry + " " + oneTry + " " + oneTry
)

func TestOrderOfCallsAndEnds(t *testing.T) {
	failure, system, unknown := step{Exit: 1}, step{Exit: 2}, step{Exit: 3}
	for sentence, test := range map[string]struct {
		plan   plan
		calls  string
		status Status
		reason FailureReason
		code   int
		says   string
	}{
		"all goes well": {plan{}, begin + " build_script after_script " + endGood, Success, "", 0, "Job succeeded"},
		"the script fails with a code of its own": {plan{"build_script": {{Exit: 1, ExitCode: "42\nmore\n"}}},
			begin + " build_script after_script " + endBad, Failed, ScriptFailure, 42, "Job failed: exit status 42"},
		"the script fails and the driver doesn't say how": {plan{"build_script": {failure}},
			begin + " build_script after_script " + endBad, Failed, ScriptFailure, 1, "Job failed: exit status 1"},
		"the code is no number": {plan{"build_script": {{Exit: 1, ExitCode: "many"}}},
			begin + " build_script after_script " + endBad, Failed, RunnerSystemFailure, 0, "unknown Custom executor executable exit code 2"},
		"the driver says system failure": {plan{"build_script": {system}},
			begin + " build_script after_script " + endBad, Failed, RunnerSystemFailure, 0, "Job failed (system failure): exit status 2"},
		"the driver ends with a code that nobody knows": {plan{"build_script": {unknown}},
			begin + " build_script after_script " + endBad, Failed, RunnerSystemFailure, 0, "unknown Custom executor executable exit code 3"},
		"after_script fails, which doesn't matter": {plan{"after_script": {failure}},
			begin + " build_script after_script " + endGood, Success, "", 0, "after_script failed, but job will continue unaffected"},
		"the environment fails": {plan{"prepare_script": {failure}},
			"config prepare prepare_script cleanup", Failed, ScriptFailure, 1, "prepare environment: exit status 1"},
		"the sources fail": {plan{"get_sources": {failure}},
			"config prepare prepare_script get_sources " + endBad, Failed, ScriptFailure, 1, ""},
		"the upload fails": {plan{"upload_artifacts_on_success": {failure}},
			begin + " build_script after_script " + endGood, Failed, ScriptFailure, 1, ""},
		"the upload fails after the script did": {plan{"build_script": {{Exit: 1, ExitCode: "42"}}, "upload_artifacts_on_failure": {system}},
			begin + " build_script after_script " + endBad, Failed, ScriptFailure, 42, ""},
		"prepare fails three times": {plan{"prepare": {system}}, threeTries, Failed, RunnerSystemFailure, 0, "Will be retried in 1ns"},
		"prepare fails once":        {plan{"prepare": {system, {}}}, oneTry + " " + begin + " build_script after_script " + endGood, Success, "", 0, ""},
		"prepare says that it is the job's fault": {plan{"prepare": {failure}},
			oneTry, Failed, ScriptFailure, 1, ""},
		"config fails three times": {plan{"config": {system}},
			"config cleanup config cleanup config cleanup", Failed, RunnerSystemFailure, 0, ""},
		"config prints what is no JSON": {plan{"config": {{Stdout: "hello"}, {}}},
			"config cleanup " + begin + " build_script after_script " + endGood, Success, "", 0, "error while parsing JSON output"},
		"cleanup fails, which doesn't matter": {plan{"cleanup": {system}},
			begin + " build_script after_script " + endGood, Success, "", 0, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newRecorder(t, test.plan)
			got := r.Run(t.Context(), simple(), nil)
			require.Equal(t, strings.Fields(test.calls), stages(r.records(t)), "%s", got.Log)
			require.Equal(t, strings.Fields(test.calls), got.Stages())
			require.Equal(t, test.status, got.Status)
			require.Equal(t, test.reason, got.FailureReason)
			require.Equal(t, test.code, got.ExitCode)
			require.Contains(t, string(got.Log), test.says)
			left, err := os.ReadDir(r.TempDir)
			require.NoError(t, err)
			require.Empty(t, left, "temporary folders are removed")
		})
	}
}

func TestEveryPreparationHasAFolderOfItsOwn(t *testing.T) {
	r := newRecorder(t, plan{"prepare": {{Exit: 2}}, "config": {{Stdout: podA}}})
	r.Run(t.Context(), simple(), nil)
	dirs := map[string][]string{}
	for _, got := range r.records(t) {
		dirs[got.Dir] = append(dirs[got.Dir], got.Stage)
		require.Contains(t, got.Env, "CUSTOM_ENV_CI_JOB_STATUS=running")
		require.Equal(t, got.Stage != "config", slices.Contains(got.Env, "POD_HINT=pod-a"), "job_env is not for config itself")
	}
	require.Len(t, dirs, 3)
	for _, calls := range dirs {
		require.Equal(t, strings.Fields(oneTry), calls)
	}
}

func TestStatusReachesWhatComesAfterTheScript(t *testing.T) {
	for status, p := range map[string]plan{"success": {}, "failed": {"build_script": {{Exit: 1}}}} {
		r := newRecorder(t, p)
		r.Run(t.Context(), simple(), nil)
		for i, got := range r.records(t) {
			want := status
			if i <= 5 {
				want = "running"
			}
			require.Contains(t, got.Env, "CUSTOM_ENV_CI_JOB_STATUS="+want, got.Stage)
			if got.Stage == "after_script" {
				require.Contains(t, got.Script, "export CI_JOB_STATUS="+want)
			}
		}
	}
}

func TestSourcesAreTriedAgain(t *testing.T) {
	job := simple()
	job.GitStrategy, job.RepoURL, job.SHA = "clone", "http://127.0.0.1/grp/prj.git", strings.Repeat("a", 40)
	job.Variables = []Variable{{Key: "GET_SOURCES_ATTEMPTS", Value: "3"}}
	r := newRecorder(t, plan{"get_sources": {{Exit: 1}}})
	got := r.Run(t.Context(), job, nil)
	require.Equal(t, "config prepare prepare_script get_sources clear_worktree get_sources get_sources "+endBad, strings.Join(got.Stages(), " "))

	job.Variables[0].Value = "11"
	got = newRecorder(t, nil).Run(t.Context(), job, nil)
	require.Equal(t, RunnerSystemFailure, got.FailureReason)
}

func TestAfterScriptMayMatter(t *testing.T) {
	job := simple()
	job.Variables = []Variable{{Key: "AFTER_SCRIPT_IGNORE_ERRORS", Value: "false"}}
	got := newRecorder(t, plan{"after_script": {{Exit: 1, ExitCode: "3"}}}).Run(t.Context(), job, nil)
	require.Equal(t, ScriptFailure, got.FailureReason)
	require.Equal(t, 3, got.ExitCode)
}

// when closes a channel once a text has come by.
type when struct {
	text string
	mu   sync.Mutex
	seen bytes.Buffer
	done chan struct{}
}

func newWhen(text string) *when { return &when{text: text, done: make(chan struct{})} }

func (w *when) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.seen.String(), w.text)
	w.seen.Write(p)
	if !before && strings.Contains(w.seen.String(), w.text) {
		close(w.done)
	}
	return len(p), nil
}

// runUntil ends the context with a cause once the log has a text.
func runUntil(t *testing.T, r *recorder, job Job, text string, cause error) Result {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	log := newWhen(text)
	go func() {
		<-log.done
		cancel(cause)
	}()
	return r.Run(ctx, job, log)
}

func TestCancel(t *testing.T) {
	hang := step{Hang: true, Exit: 1}
	for sentence, test := range map[string]struct {
		plan  plan
		cause error
		calls string
	}{
		"in the script: what comes after it still runs":   {plan{"build_script": {hang}}, errors.New("by the user"), begin + " build_script after_script " + endBad},
		"in the script, with a driver that ends with 0":   {plan{"build_script": {{Hang: true}}}, errors.New("by the user"), begin + " build_script after_script " + endBad},
		"in prepare: nothing but cleanup":                 {plan{"prepare": {{Hang: true, Exit: 2}}}, errors.New("by the user"), oneTry},
		"in get_sources: nothing but cleanup":             {plan{"get_sources": {hang}}, errors.New("by the user"), "config prepare prepare_script get_sources cleanup"},
		"an abort in the script: nothing but cleanup":     {plan{"build_script": {hang}}, ErrAborted, begin + " build_script cleanup"},
		"an abort in after_script: nothing but cleanup":   {plan{"after_script": {hang}}, ErrAborted, begin + " build_script after_script cleanup"},
		"a driver that ignores the signal is killed, too": {plan{"build_script": {{Hang: true, IgnoreTerm: true}}}, errors.New("by the user"), begin + " build_script after_script " + endBad},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newRecorder(t, test.plan)
			r.Custom.GracefulKillTimeout = 1
			got := runUntil(t, r, simple(), "hanging", test.cause)
			require.Equal(t, strings.Fields(test.calls), got.Stages(), "%s", got.Log)
			require.Equal(t, Canceled, got.Status)
			require.Equal(t, JobCanceled, got.FailureReason)
			var signals []string
			for _, record := range r.records(t) {
				if record.Signal != "" {
					signals = append(signals, record.Signal)
				}
				if record.Stage == "after_script" && record.Signal == "" {
					require.Contains(t, record.Env, "CUSTOM_ENV_CI_JOB_STATUS=canceled")
				}
			}
			require.Equal(t, []string{"terminated"}, signals)
		})
	}
}

func TestACancelInAfterScriptIsTooLate(t *testing.T) {
	r := newRecorder(t, plan{"after_script": {{Stdout: "here it is"}}})
	got := runUntil(t, r, simple(), "here it is", errors.New("by the user"))
	require.Equal(t, Success, got.Status)
	require.Equal(t, strings.Fields(begin+" build_script after_script "+endGood), got.Stages())
}

func TestSignalsGoToTheWholeGroup(t *testing.T) {
	r := newRecorder(t, plan{"build_script": {{Hang: true, Child: true, Exit: 1}}})
	got := runUntil(t, r, simple(), "hanging", errors.New("by the user"))
	require.Equal(t, Canceled, got.Status)
	for _, record := range r.records(t) {
		if record.ChildPID != 0 {
			require.Eventually(t, func() bool { return gone(record.ChildPID) }, 10*time.Second, 10*time.Millisecond)
			return
		}
	}
	t.Fatal("no call had a child")
}

// gone is whether a process has ended; nobody may have reaped it yet.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(status), ") Z ")
}

func TestTimeouts(t *testing.T) {
	hang := step{Hang: true, Exit: 1}
	for sentence, test := range map[string]struct {
		plan      plan
		timeout   time.Duration
		variables []Variable
		calls     string
		reason    FailureReason
	}{
		"the job takes too long": {plan{"build_script": {hang}}, time.Second, nil, begin + " build_script cleanup", JobExecutionTimeout},
		"prepare takes too long": {plan{"prepare": {hang}}, time.Second, nil, oneTry, ScriptFailure},
		"the script takes too long": {plan{"build_script": {hang}}, time.Minute, []Variable{{Key: "RUNNER_SCRIPT_TIMEOUT", Value: "1s"}},
			begin + " build_script after_script " + endBad, JobExecutionTimeout},
		"after_script takes too long": {plan{"after_script": {hang}}, time.Minute, []Variable{{Key: "RUNNER_AFTER_SCRIPT_TIMEOUT", Value: "1s"}},
			begin + " build_script after_script " + endGood, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			job := simple()
			job.Timeout, job.Variables = test.timeout, test.variables
			got := newRecorder(t, test.plan).Run(t.Context(), job, nil)
			require.Equal(t, strings.Fields(test.calls), got.Stages(), "%s", got.Log)
			require.Equal(t, test.reason, got.FailureReason)
		})
	}
}

func TestADriverThatIsNotThereIsASystemFailure(t *testing.T) {
	r := newRecorder(t, nil)
	r.Custom.PrepareExec = filepath.Join(t.TempDir(), "nothing")
	got := r.Run(t.Context(), simple(), nil)
	require.Equal(t, RunnerSystemFailure, got.FailureReason)
	require.Equal(t, strings.Fields(threeTries), got.Stages())
	require.ErrorContains(t, got.Err, "failed to start command")
}

func TestAVariableOfMoreThan128KiBIsASystemFailure(t *testing.T) {
	job := simple()
	job.Variables = []Variable{{Key: "BIG", Value: strings.Repeat("x", 128<<10)}}
	got := newRecorder(t, nil).Run(t.Context(), job, nil)
	require.Equal(t, RunnerSystemFailure, got.FailureReason)
	require.ErrorContains(t, got.Err, "argument list too long")
}

func TestFoldersComeFromTheDriverOrTheRunner(t *testing.T) {
	for sentence, test := range map[string]struct {
		config  string
		runner  func(*Runner)
		project string
		err     string
	}{
		"the runner's own":            {"", nil, "/builds/grp/prj", ""},
		"the driver's":                {`{"builds_dir":"/work","cache_dir":"/c"}`, nil, "/work/grp/prj", ""},
		"a folder that jobs share":    {`{"builds_dir_is_shared":true}`, nil, "/builds/fakefakef/0/grp/prj", ""},
		"nobody says where to build":  {"", func(r *Runner) { r.BuildsDir = "" }, "", "builds_dir is not configured"},
		"nobody says where caches go": {"", func(r *Runner) { r.CacheDir = "" }, "", "cache_dir is not configured"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newRecorder(t, plan{"config": {{Stdout: test.config}}})
			if test.runner != nil {
				test.runner(&r.Runner)
			}
			got := r.Run(t.Context(), simple(), nil)
			if test.err != "" {
				require.ErrorContains(t, got.Err, test.err)
				require.Equal(t, []string{"config", "cleanup"}, got.Stages())
				return
			}
			for _, record := range r.records(t)[1:] {
				require.Contains(t, record.Env, "CUSTOM_ENV_CI_PROJECT_DIR="+test.project)
				require.Contains(t, record.Env, "CUSTOM_ENV_RUNNER_TEMP_PROJECT_DIR="+test.project+".tmp")
			}
		})
	}
}

func TestOutputAndTimesOfACall(t *testing.T) {
	r := newRecorder(t, plan{"prepare": {{Stdout: "prepared\n", Stderr: "a warning\n"}}, "build_script": {{Stdout: "hello\n"}}, "cleanup": {{Stdout: "gone\n"}}})
	var live, diagnostics bytes.Buffer
	r.Diagnostics = &diagnostics
	var pids []int
	r.Observe = func(_ string, pid int) { pids = append(pids, pid) }
	got := r.Run(t.Context(), simple(), &live)
	require.Equal(t, live.Bytes(), got.Log)
	require.Equal(t, "hello\n", string(got.Output("build_script")))
	require.Contains(t, string(got.Output("prepare")), "a warning\n")
	require.NotContains(t, string(got.Log), "gone")
	require.Equal(t, "gone\n", diagnostics.String())
	for i, record := range r.records(t) {
		require.Equal(t, record.PID, pids[i])
	}
	call, ok := got.Call("build_script")
	require.True(t, ok)
	require.False(t, call.First.Before(call.Start) || call.First.After(call.End))
	call, ok = got.Call("get_sources")
	require.True(t, ok)
	require.True(t, call.First.IsZero(), "it printed nothing")
	_, ok = got.Call("clear_worktree")
	require.False(t, ok)
}
