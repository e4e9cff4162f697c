package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/pool"
)

// mostOnTheWire is how many creates of a leader that stood still may arrive all the same: those that it had looked at its
// lease for, and not sent yet. There are rarely any.
const mostOnTheWire = 3

// TestALeaderThatStoodStillGoesOnAsNone: a leader stands still while it fills a pool, another one takes over and fills it; when
// the first goes on it makes none of the pods that it was about to make, and stands by.
func TestALeaderThatStoodStillGoesOnAsNone(t *testing.T) {
	const target = 400
	s := newScene(t, form{
		runners:  []fleet.Runner{{Token: "plainplain", Images: 1, Count: target, IdleTime: time.Hour}},
		patience: 2 * time.Minute, slack: mostOnTheWire,
	})
	s.startManagers()
	namespace := s.runners[0].Namespace
	holder := func() string {
		lease, err := s.client.CoordinationV1().Leases(namespace).Get(t.Context(), pool.DefaultLeaseName, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	pods := func() []corev1.Pod {
		list, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	s.await("a fill has begun", func() []string { return unless(len(pods()) >= target/8, "few pods") })
	leader := s.managers[0]
	if !leader.process.Leads() {
		leader = s.managers[1]
	}
	first := holder()
	require.NoError(t, leader.process.Freeze())
	frozen := len(pods())
	require.Less(t, frozen, target, "it was faster than this test")
	s.await("another manager leads and fills the pool", func() []string {
		return unless(holder() != first && len(pods()) == target, fmt.Sprintf("%d pods, led by %s", len(pods()), holder()))
	})

	require.NoError(t, leader.process.Thaw())
	s.await("the first stops leading", func() []string {
		return unless(strings.Contains(leader.process.Log(), "this manager stops leading"), "it leads")
	})
	created := s.checker.Stats().Created
	t.Logf("%d pods when the leader stood still, %d created in all for %d", frozen, created, target)
	require.LessOrEqual(t, int(created), target+mostOnTheWire, "they went on to be made")
	s.await("there are as many pods as are wanted", func() []string { return unless(len(pods()) == target, "more") })
	require.NotEqual(t, first, holder(), "it has given back the lease of the other one, and taken it")
}

// unless is what s.await asks for.
func unless(holds bool, missing string) []string {
	if holds {
		return nil
	}
	return []string{missing}
}
