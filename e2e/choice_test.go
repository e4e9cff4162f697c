package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// What a runner doesn't allow fails a job at once and for good, with the list in its log.
func TestJobsMayUseOnlyWhatTheRunnerAllows(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	allowed := s.ref(images.JobBusybox)
	s.configure(settings{"allowed_images": []string{allowed}, "allowed_services": []string{"postgres:*"}})

	for sentence, job := range map[string]runner.Job{
		"an image":  {Image: s.ref(images.JobBare), Script: []string{"true"}},
		"a service": {Services: []runner.Service{{Name: s.ref(images.Service), Alias: "web"}}, Script: []string{"true"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			result := s.run(job)
			require.Equal(t, runner.Failed, result.Status)
			require.Equal(t, runner.ScriptFailure, result.FailureReason)
			log := string(result.Log)
			require.Contains(t, log, "the runner doesn't allow the image")
			require.Equal(t, 1, strings.Count(log, "the runner doesn't allow the image"), "prepare isn't tried again")
		})
	}
	t.Run("what is allowed, and the runner's own image", func(t *testing.T) {
		s := s.with(t)
		for _, image := range []string{allowed, ""} {
			require.Equal(t, runner.Success, s.run(runner.Job{Image: image, Script: []string{"true"}}).Status)
		}
	})
	t.Run("root has to be on a list, else the job runs as its image says", func(t *testing.T) {
		s := s.with(t)
		result := s.run(runner.Job{User: "0:0", Script: []string{"true"}})
		require.Equal(t, runner.Success, result.Status)
		require.Contains(t, string(result.Output("prepare")), "warning: image:kubernetes:user: user 0 is left out: the runner doesn't allow it (allowed_users: all but 0)")
	})
}

// The pool of an image with settings of its own is met by jobs with that image, services and all.
func TestAnImageHasSettingsOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.configure(settings{"idle_count": 1, "idle_image": []settings{{
		"image": s.ref(images.JobBusybox), "idle_count": 2, "memory_request": "16Mi",
		"services": []settings{{"name": s.ref(images.Service), "alias": "web"}},
	}}})
	s.startManager()
	s.untilIdle(3)
	result := s.run(runner.Job{Image: s.ref(images.JobBusybox), Script: []string{`until wget -q -O - http://web:8080/; do sleep 0.2; done`}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("prepare")), "idle for", "it was warm")
	require.Contains(t, string(result.Output("build_script")), "hello from the service")
	result = s.run(runner.Job{Script: []string{"true"}})
	require.Contains(t, string(result.Output("prepare")), "idle for", "so was that of the table")
}
