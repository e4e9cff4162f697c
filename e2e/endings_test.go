package e2e_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for sentence, test := range map[string]struct {
		script string
		code   int
	}{
		"nothing wrong":                        {"true", 0},
		"one":                                  {"exit 1", 1},
		"two, which is the driver's own":       {"exit 2", 2},
		"the entrypoint's own":                 {"exit 10", 10},
		"255":                                  {"exit 255", 255},
		"a command that doesn't exist":         {"no-such-command", 127},
		"a shell that kills itself":            {"kill -KILL $$", 137},
		"a command that a signal ended":        {"sh -c 'kill -TERM $$'", 143},
		"a background process that lives on":   {"sleep 300 & exit 3", 3},
		"a pipe that is closed by its reader":  {"set +o pipefail; yes | head -n 1", 0},
		"output without a newline at its end":  {"printf x; exit 4", 4},
		"a daemon that keeps stdout and stdin": {"(setsid sleep 300 &) ; exit 5", 5},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			result := s.run(runner.Job{Script: []string{test.script}})
			require.Equal(t, test.code, result.ExitCode)
			want := runner.ScriptFailure
			if test.code == 0 {
				want = ""
			}
			require.Equal(t, want, result.FailureReason)
		})
	}
}

func TestAnImageThatDoesNotExistFailsTheJobAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	registry, _, _ := strings.Cut(s.ref(images.JobBash), "/")
	for sentence, test := range map[string]struct{ image, says string }{
		"no such tag":        {registry + "/job-bash:nothing", "not found"},
		"no such repository": {registry + "/nothing:1", "not found"},
		"no valid name":      {"UPPER CASE", "image"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			job := numbered(runner.Job{Image: test.image, Script: []string{"true"}})
			result := s.run(job)
			require.Equal(t, runner.ScriptFailure, result.FailureReason, "the job's author has to mend it, nobody should try again")
			require.Contains(t, string(result.Output("prepare")), test.says)
			require.Equal(t, []string{"config", "prepare", "cleanup"}, result.Stages())
			s.untilNone(job.ID)
		})
	}
}

func TestAPodThatGoesAwayUnderItsJobIsASystemFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for sentence, test := range map[string]struct {
		do   func(pods typedcorev1.PodInterface, pod corev1.Pod) error
		says string
	}{
		"somebody deletes it": {func(pods typedcorev1.PodInterface, pod corev1.Pod) error {
			return pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
		}, "deleted"},
		"somebody deletes it without grace": {func(pods typedcorev1.PodInterface, pod corev1.Pod) error {
			return pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}, ""},
		"its time is over": {func(pods typedcorev1.PodInterface, pod corev1.Pod) error {
			pod.Spec.ActiveDeadlineSeconds = new(int64(1))
			_, err := pods.Update(t.Context(), &pod, metav1.UpdateOptions{})
			return err
		}, "longer than the 1s that the job's timeout allows"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			job := numbered(runner.Job{Script: []string{"echo running", "sleep 600"}, AfterScript: []string{"echo after"}})
			result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) error {
				pod, err := s.podOf(job.ID)
				if err != nil {
					return err
				}
				return test.do(s.client.CoreV1().Pods(s.namespace), pod)
			})
			require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
			require.Contains(t, string(result.Output("build_script")), test.says)
			call, _ := result.Call("build_script")
			require.Less(t, call.End.Sub(call.Start), 5*time.Minute, "at once, not when the script would have been over")
		})
	}
}

func canceledByUser(cancel context.CancelCauseFunc) error {
	cancel(errors.New("canceled by a user"))
	return nil
}

func TestCancelEndsTheScriptWithItsChildrenAndRunsAfterScript(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	job := numbered(runner.Job{
		Script: []string{`trap 'echo got TERM' TERM`, `sh -c 'echo $$ > /tmp/child; exec sleep 777' & (setsid sleep 778 &); echo running; sleep 779`},
		// What is left is looked for in the pod itself, where the job's processes are.
		AfterScript: []string{"echo after $CI_JOB_STATUS", "ps -o pid,args | grep -c '[s]leep 77[789]' || true"},
	})
	result := s.runWhile(job, "\nrunning", canceledByUser)
	require.Equal(t, runner.Canceled, result.Status)
	require.Contains(t, string(result.Output("after_script")), "\nafter canceled\n")
	require.Contains(t, string(result.Output("after_script")), "\n0\n", "no process of the script is left")
	s.untilNone(job.ID)
}

func TestAScriptThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	job := numbered(runner.Job{Script: []string{`trap '' TERM`, `sh -c 'trap "" TERM; echo running; while true; do sleep 1; done'`},
		AfterScript: []string{"echo after $CI_JOB_STATUS"}})
	result := s.runWhile(job, "\nrunning", canceledByUser)
	require.Equal(t, runner.Canceled, result.Status)
	require.Contains(t, string(result.Output("after_script")), "\nafter canceled\n")
	call, _ := result.Call("build_script")
	require.NotEqual(t, -1, call.ExitCode, "the driver ended by itself, GitLab Runner didn't have to kill it")
}

func TestAnAbortedJobLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	job := numbered(runner.Job{Script: []string{"echo running; sleep 600"}, AfterScript: []string{"echo after"}})
	result := s.runWhile(job, "\nrunning", func(cancel context.CancelCauseFunc) error {
		cancel(runner.ErrAborted)
		return nil
	})
	require.Equal(t, []string{"config", "prepare", "prepare_script", "get_sources", "build_script", "cleanup"}, result.Stages())
	s.untilNone(job.ID)
}

func TestJobsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for sentence, test := range map[string]struct {
		timeout   time.Duration
		variables []runner.Variable
		stages    string // from the script on
	}{
		"the job's timeout":    {20 * time.Second, nil, "build_script cleanup"},
		"the script's timeout": {time.Hour, []runner.Variable{{Key: "RUNNER_SCRIPT_TIMEOUT", Value: "1s"}}, "build_script after_script cleanup_file_variables cleanup"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			job := numbered(runner.Job{Timeout: test.timeout, Variables: test.variables, Script: []string{"echo running; sleep 600"}, AfterScript: []string{"echo after"}})
			result := s.run(job)
			require.Equal(t, runner.JobExecutionTimeout, result.FailureReason)
			stages := strings.Join(result.Stages(), " ")
			require.True(t, strings.HasSuffix(stages, " "+test.stages), stages)
			s.untilNone(job.ID)
		})
	}
}

func TestPrepareCutShortIsRepeatedWithOnePod(t *testing.T) {
	t.Parallel()
	for sentence, idle := range map[string]int{"with a warm pod": 3, "with a cold one": 0} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, settings{"idle_count": idle})
			s.startManager()
			s.untilIdle(idle)
			// Each try of prepare is killed a little later, without a chance to clean up; GitLab Runner's cleanup is made
			// to fail as well, so that nothing but the job's id is left between the tries.
			delay := 50 * time.Millisecond
			tries := 0
			s.runner.Custom.CleanupExec = ""
			s.runner.Observe = func(stage string, pid int) {
				if stage != "prepare" {
					return
				}
				if tries++; tries == 3 {
					return
				}
				time.AfterFunc(delay, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
				delay *= 4
			}
			job := numbered(runner.Job{Script: []string{"echo hi"}})
			result := s.run(job)
			require.Equal(t, runner.Success, result.Status)
			_, err := s.podOf(job.ID)
			require.NoError(t, err, "one pod, exactly")
		})
	}
}

func TestCleanupWithoutPrepare(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.runner.Custom.PrepareExec = "/bin/false" // a failure of the job's own: cleanup comes, and no further try
	result := s.run(runner.Job{Script: []string{"echo hi"}})
	require.Equal(t, []string{"config", "prepare", "cleanup"}, result.Stages())
	cleanup, _ := result.Call("cleanup")
	require.NoError(t, cleanup.Err)
}

func TestAPodWhoseDriverIsGoneForGoodEndsByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_abandon_time": "3s"})
	s.runner.Custom.CleanupExec = ""
	var driver int
	s.runner.Observe = func(stage string, pid int) {
		if stage == "build_script" {
			driver = pid
		}
	}
	job := numbered(runner.Job{Script: []string{"echo running; sleep 600"}})
	result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) error { return syscall.Kill(driver, syscall.SIGKILL) })
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
	pod, err := s.podOf(job.ID)
	require.NoError(t, err)
	s.until("the pod has ended", func(pods []corev1.Pod) bool {
		for _, p := range ofJob(pods, job.ID) {
			if p.UID == pod.UID {
				return p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded"
			}
		}
		return false
	})
}
