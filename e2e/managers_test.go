package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
)

func TestAManagerThatIsKilledAndStartedAgainKeepsThePods(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 3})
	m := s.startManager()
	before := uids(s.untilIdle(3))
	m.stop(syscall.SIGKILL)
	m = s.startManager()
	m.untilLeading(t)
	require.Equal(t, before, uids(s.untilIdle(3)))
	m.stop(syscall.SIGKILL)

	// A job takes one meanwhile: the next manager makes up for that one, and touches no other.
	job := numbered(runner.Job{Script: []string{"echo hi"}})
	require.Equal(t, runner.Success, s.run(job).Status)
	s.untilNone(job.ID)
	m = s.startManager()
	m.untilLeading(t)
	after := uids(s.untilIdle(3))
	require.Len(t, common(before, after), 2, "before %v, after %v", before, after)
}

func TestIdlePodsEndByThemselvesWhenTheirManagerIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2, "idle_time": "20s"})
	m := s.startManager()
	idle := s.untilIdle(2)
	m.stop(syscall.SIGKILL)
	s.until("the pods have expired", func(pods []corev1.Pod) bool {
		return len(in(pods, factory.Expired)) >= len(idle) && len(in(pods, factory.Idle)) == 0
	})
	list, err := s.client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			require.NotNil(t, c.State.Terminated, "container %s of pod %s still runs", c.Name, pod.Name)
		}
	}
}

func TestTwoManagersAreOneLeaderAndOnePool(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2})
	first, second := s.startManager(), s.startManager()
	before := uids(s.untilIdle(2))
	leader, other := first, second
	if second.leads() {
		leader, other = second, first
	}
	require.True(t, leader.leads())
	require.False(t, other.leads())
	leader.stop(syscall.SIGKILL)
	other.untilLeading(t)
	require.Equal(t, before, uids(s.untilIdle(2)))
	result := s.run(runner.Job{Script: []string{"echo hi"}})
	require.Equal(t, runner.Success, result.Status)
	require.Len(t, common(before, uids(s.untilIdle(2))), 1, "the new leader refills")
}

func TestStatusShowsThePool(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2})
	s.startManager()
	s.untilIdle(2)
	job := numbered(runner.Job{Script: []string{"echo running; while [ ! -e go ]; do sleep 0.1; done"}})
	var table string
	result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) (err error) {
		// The pool is refilled while the job runs; the status says so a moment later.
		for table, err = s.status(); err == nil && !refilled(table); table, err = s.status() {
			time.Sleep(100 * time.Millisecond)
		}
		return errors.Join(err, s.goOn(job.ID))
	})
	require.Equal(t, runner.Success, result.Status)
	t.Log(table)
	require.Equal(t, "1", column(table, "CLAIMED"))
	require.Equal(t, "0", column(table, "WARMING"))
}

func refilled(table string) bool {
	return column(table, "WANT") == "2" && column(table, "IDLE") == "2" && column(table, "CLAIMED") == "1"
}

// column is a value of the first pool in a table.
func column(table, name string) string {
	lines := strings.Split(table, "\n")
	if len(lines) < 2 {
		return ""
	}
	values := strings.Fields(lines[1])
	for i, head := range strings.Fields(lines[0]) {
		if head == name && i < len(values) {
			return values[i]
		}
	}
	return ""
}

// status is what the command prints.
func (s *site) status(args ...string) (string, error) {
	cmd := exec.CommandContext(s.t.Context(), s.binaries.Idlecount, append([]string{"status", "--kubeconfig", s.kubeconfig, "-n", s.namespace}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("idlecount status: %w: %s", err, &stderr)
	}
	return string(out), nil
}

// leads is whether a manager has said that it leads.
func (m *manager) leads() bool { return strings.Contains(m.log.String(), "this manager leads") }

// untilLeading waits until it does.
func (m *manager) untilLeading(t *testing.T) {
	t.Helper()
	require.Eventually(t, m.leads, patience, 100*time.Millisecond, "the manager's log: %s", m.log)
}

func common(a, b []string) []string {
	var all []string
	for _, x := range a {
		for _, y := range b {
			if x == y {
				all = append(all, x)
			}
		}
	}
	return all
}
