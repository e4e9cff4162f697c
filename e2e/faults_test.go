package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/runner"
)

// A script prints a number every 10 ms while something breaks: every number must come once, in order, and the exit code
// must be the script's. These tests have the cluster for themselves.
func TestScriptsSurviveTheControlPlane(t *testing.T) {
	c := clustertest.Local(t)
	s := newSite(t, settings{"idle_count": 2})
	s.startManager()
	for sentence, fault := range map[string]func(ctx context.Context) error{
		"the API server is restarted": func(ctx context.Context) error { return c.Restart(ctx, cluster.APIServer) },
		"the API server is killed and comes back": func(ctx context.Context) error {
			return errors.Join(c.Kill(ctx, cluster.APIServer), c.Start(ctx, cluster.APIServer))
		},
		"all connections to the API server are cut, three times": func(ctx context.Context) error {
			for range 3 {
				if cut, err := c.CutConnections(ctx); err != nil || cut == 0 {
					return fmt.Errorf("%d connections were cut: %w", cut, err)
				}
			}
			return nil
		},
		"the kubelet is restarted": func(ctx context.Context) error { return c.Restart(ctx, cluster.Kubelet) },
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			require.NoError(t, c.Repair(t.Context()), "after the fault before this one")
			s.untilIdle(2)
			// It goes on until it is told to end, so that the fault comes in its middle however long it takes, and some more.
			job := numbered(runner.Job{Script: []string{
				"i=0; more=100",
				`while [ $more -gt 0 ]; do echo "line $i"; i=$((i+1)); sleep 0.01; [ ! -e go ] || more=$((more-1)); done`,
				`echo "last $i"; exit 5`}})
			result := s.runWhile(job, "\nline 50\n", func(context.CancelCauseFunc) error {
				return errors.Join(fault(t.Context()), s.goOn(job.ID))
			})
			require.Equal(t, runner.ScriptFailure, result.FailureReason)
			require.Equal(t, 5, result.ExitCode)
			requireCounted(t, result.Output("build_script"))
		})
	}
}

// requireCounted finds every number once and in order.
func requireCounted(t *testing.T, output []byte) {
	t.Helper()
	last := regexp.MustCompile(`(?m)^last ([0-9]+)$`).FindSubmatch(output)
	require.NotNil(t, last)
	n, err := strconv.Atoi(string(last[1]))
	require.NoError(t, err)
	var want bytes.Buffer
	for i := range n {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	got := bytes.Join(regexp.MustCompile(`(?m)^line [0-9]+\n`).FindAll(output, -1), nil)
	require.Equal(t, want.String(), string(got))
	t.Logf("%d numbers, each once", n)
}

func TestAJobWaitsForAnAPIServerThatIsAway(t *testing.T) {
	c := clustertest.Local(t)
	s := newSite(t, settings{"idle_count": 1})
	m := s.startManager()
	s.untilIdle(1)
	for sentence, stage := range map[string]string{"before prepare": "prepare", "before the script": "build_script", "before cleanup": "cleanup"} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			require.NoError(t, c.Repair(t.Context()), "after the fault before this one")
			s.untilIdle(1)
			back := make(chan error, 1)
			s.runner.Observe = func(called string, _ int) {
				if called == stage {
					if err := c.Kill(t.Context(), cluster.APIServer); err != nil {
						back <- err
						return
					}
					go func() { back <- c.Start(t.Context(), cluster.APIServer) }()
				}
			}
			job := numbered(runner.Job{Script: []string{"echo hi"}})
			result := s.run(job)
			require.NoError(t, <-back)
			require.Equal(t, runner.Success, result.Status)
			s.untilNone(job.ID)
		})
	}
	select {
	case <-m.ended:
		t.Fatal("the manager must outlive its API server")
	default:
	}
}
