package e2e_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
)

func TestAWarmJobTakesAnIdlePodAndThePoolIsRefilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2})
	s.startManager()
	before := uids(s.untilIdle(2))

	job := numbered(runner.Job{Script: []string{"echo hello from $HOSTNAME", "echo running; while [ ! -e go ]; do sleep 0.1; done"}})
	var pod corev1.Pod
	result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) (err error) {
		pod, err = s.podOf(job.ID)
		return errors.Join(err, s.goOn(job.ID))
	})
	require.Equal(t, runner.Success, result.Status, "%s", result.Log)
	require.Contains(t, before, string(pod.UID), "the job ran in a pod that was idle before")
	require.Equal(t, "warm", pod.Annotations[factory.AnnotationWarmth])
	require.Empty(t, pod.OwnerReferences, "a claimed pod doesn't go with its pool")
	require.Equal(t, "false", pod.Annotations[factory.AnnotationSafeToEvict])
	require.NotNil(t, pod.Spec.ActiveDeadlineSeconds)
	require.Contains(t, string(result.Output("prepare")), "claimed warm pod "+s.namespace+"/"+pod.Name)
	require.Contains(t, string(result.Output("prepare")), "idle for")
	require.Contains(t, string(result.Output("build_script")), "hello from "+pod.Name)

	s.untilNone(job.ID)
	after := uids(s.untilIdle(2))
	require.NotContains(t, after, string(pod.UID), "a used pod never goes back")
}

func TestAColdJobGetsAPodOfItsOwnAndIsToldWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1})
	s.startManager()
	idle := uids(s.untilIdle(1))
	job := numbered(runner.Job{Image: s.ref(images.JobBusybox), Script: []string{"echo cold"}})
	result := s.run(job)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("prepare")), "no warm pod: image "+s.ref(images.JobBusybox)+" is not among the runner's idle_images")
	require.Contains(t, string(result.Output("build_script")), "cold")
	s.untilNone(job.ID)
	require.Equal(t, idle, uids(s.untilIdle(1)), "the idle pod of another image is still there")
}

func TestAJobRunsWhileNoManagerDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1, "idle_time": "0s"})
	m := s.startManager()
	idle := s.untilIdle(1)
	m.stop(syscall.SIGTERM)
	result := s.run(runner.Job{Script: []string{"echo $HOSTNAME"}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), idle[0].Name)

	result = s.run(runner.Job{Script: []string{"echo again"}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("prepare")), "no warm pod")
}
