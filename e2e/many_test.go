package e2e_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/runner"
)

// Twenty jobs at once on twenty idle pods: each job gets a pod, each pod one job, and nobody waits for a new one.
func TestTwentyJobsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	s := newSite(t, settings{"idle_count": n})
	m := s.startManager()
	idle := s.untilIdle(n)
	// With the manager gone there are these pods and no others.
	m.stop(syscall.SIGTERM)
	var names []string
	for _, pod := range idle {
		names = append(names, pod.Name)
	}
	results := make([]runner.Result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			results[i] = s.runner.Run(t.Context(), numbered(runner.Job{Concurrent: i, Script: []string{"echo on $HOSTNAME."}}), nil)
		})
	}
	wg.Wait()
	for _, name := range names {
		var on int
		for _, result := range results {
			if strings.Contains(string(result.Output("build_script")), "on "+name+".") {
				on++
			}
		}
		require.Equal(t, 1, on, "jobs on pod %s", name)
	}
	for _, result := range results {
		require.Equal(t, runner.Success, result.Status, "%s", result.Log)
		require.NotContains(t, string(result.Log), "no warm pod")
	}
}
