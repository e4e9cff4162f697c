package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/runner"
)

// What a job asks for in vain is its author's to mend: no retries, no alarm at those who look after the runner.
func TestWhatAJobAsksForInVain(t *testing.T) {
	g := newGround(t)
	large := make([]runner.Variable, 20)
	for i := range large {
		large[i] = runner.Variable{Key: "LARGE_" + strconv.Itoa(i), Value: strings.Repeat("x", 60<<10), Public: true}
	}
	for sentence, test := range map[string]struct {
		job  runner.Job
		says string
	}{
		"an image that isn't a name":     {runner.Job{Image: " " + g.images["job-bash"]}, "must not have leading or trailing whitespace"},
		"a user that can't be":           {runner.Job{User: "99999999999"}, "runAsUser"},
		"an image without a shell":       {runner.Job{Image: g.images["entrypoint"]}, "has no shell"},
		"variables that no Secret holds": {runner.Job{Variables: large, Services: []runner.Service{{Name: g.images["job-busybox"], Alias: "web"}}}, "a Secret, which holds 1024 KiB at most"},
	} {
		t.Run(sentence, func(t *testing.T) {
			test.job.ID, test.job.Script = id.Add(1), []string{"true"}
			result := g.runner.Run(t.Context(), test.job, nil)
			log := tailOf(result.Log)
			require.Equal(t, runner.ScriptFailure, result.FailureReason, "%s", log)
			require.Len(t, result.Calls, 3, "config, prepare, cleanup: %v", result.Stages())
			require.Contains(t, string(log), test.says)
			require.Less(t, result.End.Sub(result.Start), time.Minute)
			for _, pod := range g.ofJob(t, test.job.ID) {
				require.NotNil(t, pod.DeletionTimestamp)
			}
		})
	}
}
