package e2e_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/runner"
)

// A job may set any variable in its .gitlab-ci.yml, and GitLab Runner hands it to the driver in place of its own. No job can
// get at another one that way.
func TestAJobCannotPassForAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{})
	victim := numbered(runner.Job{Script: []string{"echo begun", "while [ ! -e go ]; do sleep 0.1; done", "echo unharmed"}})
	result := s.runWhile(victim, "begun", func(context.CancelCauseFunc) error {
		attacker := numbered(runner.Job{Script: []string{"echo $HOSTNAME"}, Variables: []runner.Variable{
			{Key: "CI_JOB_ID", Value: strconv.FormatInt(victim.ID, 10)},
			{Key: "CI_PROJECT_ID", Value: "1"},
		}})
		forged := s.run(attacker)
		require.Equal(t, runner.Success, forged.Status, "it is a job like any other")
		pod, err := s.podOf(victim.ID)
		require.NoError(t, err)
		require.Nil(t, pod.DeletionTimestamp)
		require.NotContains(t, string(forged.Log), pod.Name)
		return s.goOn(victim.ID)
	})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "unharmed")

	other := s.run(runner.Job{Script: []string{"echo got through"}, Variables: []runner.Variable{{Key: "CI_RUNNER_SHORT_TOKEN", Value: "otherothe"}}})
	require.NotEqual(t, runner.Success, other.Status)
	require.NotContains(t, string(other.Log), "got through")
	require.Contains(t, string(other.Log), "CI_RUNNER_SHORT_TOKEN must not be set")
}
