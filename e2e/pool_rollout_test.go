package e2e_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// rewrite changes config.toml where it is, by renaming another file over it, as editors and ansible do.
func (s *site) rewrite(more settings) {
	s.t.Helper()
	path := s.config
	s.configure(more)
	text, err := os.ReadFile(s.config)
	require.NoError(s.t, err)
	s.replace(path, string(text))
	s.config = path
}

func (s *site) replace(path, text string) {
	s.t.Helper()
	next := filepath.Join(filepath.Dir(path), ".next")
	require.NoError(s.t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(s.t, os.Rename(next, path))
}

// TestRotationLeavesNoGap lets a pool live past its pods' idle time: they are replaced before they go.
func TestRotationLeavesNoGap(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2, "idle_time": "60s"})
	s.startManager()
	first := uids(s.untilIdle(2))
	s.always(atLeastIdle(2))
	s.until("all pods are other ones", func(pods []corev1.Pod) bool {
		idle := in(pods, factory.Idle)
		return len(idle) == 2 && len(common(first, uids(pods))) == 0
	})
}

// TestAChangedFileRollsTheNewShapeOut changes the file of a running manager while a job runs.
func TestAChangedFileRollsTheNewShapeOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 2})
	m := s.startManager()
	s.untilIdle(2)
	job := numbered(runner.Job{Script: []string{"echo running; while [ ! -e go ]; do sleep 0.1; done; echo over"}})
	var before []string
	steady := func() {}
	result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) error {
		idle := s.untilIdle(2)
		before = uids(idle)
		steady = s.always(atLeastIdle(2))
		s.rewrite(settings{"idle_count": 2, "cpu_request": "2m"})
		s.until("the idle pods are of the new shape", func(pods []corev1.Pod) bool {
			return len(in(pods, factory.Idle)) == 2 && len(common(before, uids(pods))) == 0
		})
		_, err := s.podOf(job.ID)
		return errors.Join(err, s.goOn(job.ID))
	})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "over")
	for _, pod := range s.untilIdle(2) {
		require.Equal(t, "2m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
	}
	require.Equal(t, 1, strings.Count(m.log.String(), "this manager leads"))
	s.untilNone(job.ID)
	require.Eventually(t, func() bool { return len(s.statuses()) == 1 }, patience, 100*time.Millisecond, "the old pool's anchor goes with its last job")

	steady()
	warm := s.run(runner.Job{Script: []string{"echo hi"}})
	require.Equal(t, runner.Success, warm.Status)
	require.Contains(t, string(warm.Output("prepare")), "idle for", "jobs find the pods of the new shape")
}

func TestABrokenFileIsNamedAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1})
	m := s.startManager()
	before := uids(s.untilIdle(1))
	good, err := os.ReadFile(s.config)
	require.NoError(t, err)
	s.replace(s.config, strings.Replace(string(good), "idle_count", "idle_cuont", 1))
	broken := s.untilStatus("the file is named", func(st status.Status) bool { return st.ConfigError != "" })
	require.Contains(t, broken.ConfigError, "idle_cuont")
	require.Contains(t, broken.ConfigError, "idle_count", "the key that was meant")
	require.NotContains(t, broken.ConfigError, "fakefakefake", "no token")
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "sighup=true") }, patience, 50*time.Millisecond)
	require.Equal(t, before, uids(s.untilIdle(1)))
	require.Eventually(t, func() bool { return len(s.events("ConfigBroken")) == 1 }, patience, 100*time.Millisecond)

	s.replace(s.config, strings.Replace(string(good), "idle_count = 1", "idle_count = 2", 1))
	after := uids(s.untilIdle(2))
	require.Subset(t, after, before)
	s.untilStatus("nothing is wrong", func(st status.Status) bool { return st.ConfigError == "" })
	require.Equal(t, 1, strings.Count(m.log.String(), "can't be used"), "it is said once")
}

// TestAQuotaIsNeverOvershot has a quota that the pool's wish and a colleague's pod share.
func TestAQuotaIsNeverOvershot(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 4})
	quotas := s.client.CoreV1().ResourceQuotas(s.namespace)
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		q, err := quotas.Get(t.Context(), "team", metav1.GetOptions{})
		return err == nil && q.Status.Hard.Pods().Value() == 2
	}, patience, 100*time.Millisecond, "the quota is in force")
	s.startManager()
	idle := uids(s.untilIdle(2))
	short := s.untilStatus("the quota is named", shortOf(status.Quota))
	require.Contains(t, short.Shortfall.Message, "exceeded quota: team")
	require.Len(t, s.events("Shortfall"), 1)

	quota.Spec.Hard[corev1.ResourcePods] = resource.MustParse("6")
	quota.ResourceVersion = ""
	_, err = quotas.Update(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Subset(t, uids(s.untilIdle(4)), idle, "what was there stays")
	s.untilStatus("nothing is short", func(st status.Status) bool { return st.Shortfall == nil })
	require.True(t, slices.Contains(s.events("Recovered"), "Quota is over"))
}
