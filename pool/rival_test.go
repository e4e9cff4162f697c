package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

func TestThePlaceOfADeletedPodIsLeftBelowAQuota(t *testing.T) {
	now := at(1000).Time
	require.Zero(t, giveWay(now, now, time.Time{}), "no quota is known")
	require.Zero(t, giveWay(now, time.Time{}, now), "nobody has taken a pod")
	require.Zero(t, giveWay(now, now, now.Add(-quotaFresh-1)), "the quota was tight long ago")
	require.Equal(t, now.Add(giveWayFor), giveWay(now, now, now.Add(-quotaFresh)))

	pod := func(uid string, state plan.State) plan.Pod { return plan.Pod{UID: uid, State: state} }
	before := snapshot{pods: []plan.Pod{
		pod("idle", plan.Idle), pod("warming", plan.Warming), pod("surplus", plan.Idle), pod("job", plan.Claimed), pod("", plan.Warming),
	}}
	m := &memory{}
	m.remember(before, []plan.Deletion{{UID: "surplus"}})
	require.False(t, m.robbed(before))
	require.False(t, m.robbed(snapshot{pods: []plan.Pod{pod("idle", plan.Expired), pod("warming", plan.Claimed)}}), "what this manager deletes, and what ends, is no theft")
	require.True(t, m.robbed(snapshot{pods: []plan.Pod{pod("idle", plan.Ending), pod("warming", plan.Idle)}}))
	require.True(t, m.robbed(snapshot{pods: []plan.Pod{pod("idle", plan.Idle)}}))

	m.refused.until, m.giveWay = now.Add(time.Second), now.Add(giveWayFor)
	require.Equal(t, now.Add(giveWayFor), m.notBefore())
	m.refused.until = now.Add(time.Minute)
	require.Equal(t, now.Add(time.Minute), m.notBefore())
}

func TestARefusalEndsWithThePermissionThatWasMissing(t *testing.T) {
	now := at(1000).Time
	access := refusals{}.after(now, plan.Shortfall{Reason: string(status.Access)})
	require.True(t, access.liftedBy(now.Add(time.Second)))
	require.False(t, access.liftedBy(now.Add(-time.Second)), "that was before")
	require.False(t, access.liftedBy(time.Time{}))
	require.False(t, refusals{}.after(now, plan.Shortfall{Reason: string(status.Quota)}).liftedBy(now.Add(time.Second)))
	require.False(t, refusals{}.liftedBy(now))
}

// TestAPoolIsQuietWhenNothingIsDoneThatIsDue: that is the only sign of managers whose lease can't be read.
func TestAPoolIsQuietWhenNothingIsDoneThatIsDue(t *testing.T) {
	now := at(1000).Time
	anchor := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: version}}
	}
	one := cached(t, seen("a", "p", factory.StateIdle))
	look := func(m *memory, after time.Duration, a *corev1.ConfigMap, before status.Status) time.Duration {
		p := &pass{scene: scene{now: now.Add(after), cache: one}, key: key{"ci", "p"}, anchor: a, before: before, memory: m}
		return p.quiet()
	}
	short, full := status.Status{Want: 2}, status.Status{Want: 1}

	m := &memory{}
	require.Zero(t, look(m, 0, anchor("1"), full))
	require.Zero(t, look(m, time.Hour, anchor("1"), full), "it is kept")

	require.Zero(t, look(m, time.Hour, anchor("1"), short))
	require.Equal(t, time.Minute, look(m, time.Hour+time.Minute, anchor("1"), short))
	require.Zero(t, look(m, time.Hour+2*time.Minute, anchor("2"), short), "somebody writes")
	require.Zero(t, look(m, time.Hour+3*time.Minute, anchor("2"), full), "somebody fills it")
	require.Zero(t, look(m, time.Hour+4*time.Minute, anchor("2"), short))

	m = &memory{}
	paused := anchor("1")
	paused.Annotations = map[string]string{factory.AnnotationPaused: "true"}
	require.Zero(t, look(m, 0, paused, short))
	require.Zero(t, look(m, time.Hour, paused, short), "nothing is due")

	m = &memory{}
	full.NextChange = new(now.Add(time.Minute))
	require.Zero(t, look(m, 0, anchor("1"), full))
	require.Zero(t, look(m, 2*time.Minute, anchor("1"), full))
	require.Equal(t, time.Minute, look(m, 3*time.Minute, anchor("1"), full), "its next policy is overdue")
}
