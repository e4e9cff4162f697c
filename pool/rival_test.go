package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

func leaseOfHolder(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: new(int32(9)),
	}}
}

func TestALeaseIsHeldWhileItIsRenewed(t *testing.T) {
	now := at(1000).Time
	read := func(r rival, after time.Duration, lease *coordinationv1.Lease) rival {
		return r.after(now.Add(after), "a/b", lease)
	}

	require.Equal(t, status.Absent, read(rival{}, 0, nil).state)
	require.Equal(t, status.Lapsed, read(rival{}, 0, leaseOfHolder("", now)).state, "given back")
	require.Equal(t, status.Held, read(rival{}, 0, leaseOfHolder("m", now.Add(-time.Second))).state)

	hour := now.Add(-time.Hour) // it has ended long ago, or its manager's clock is an hour slow
	r := read(rival{}, 0, leaseOfHolder("m", hour))
	require.Empty(t, r.state)
	require.Equal(t, now.Add(rivalSoon), r.again())
	require.Equal(t, status.Held, read(r, 2*time.Second, leaseOfHolder("m", hour.Add(time.Second))).state, "its clock is slow")
	r = read(r, 8*time.Second, leaseOfHolder("m", hour))
	require.Empty(t, r.state)
	r = read(r, 10*time.Second, leaseOfHolder("m", hour))
	require.Equal(t, status.Lapsed, r.state)
	require.Equal(t, status.Held, read(r, 20*time.Second, leaseOfHolder("other", now)).state)

	r = read(rival{}, 0, leaseOfHolder("m", now.Add(time.Hour))) // its clock is fast
	require.Equal(t, status.Held, r.state)
	require.Equal(t, now.Add(rivalEvery), r.again())
	require.Equal(t, status.Lapsed, read(r, rivalEvery, leaseOfHolder("m", now.Add(time.Hour))).state)
}

func TestAPoolIsTakenFromNobodyWhoHoldsIt(t *testing.T) {
	for sentence, c := range map[string]struct {
		state   status.LeaseState
		owned   bool
		quiet   time.Duration
		takings int
		takes   bool
	}{
		"a held lease's pool is left, whoever came first": {state: status.Held},
		"… also where it lies idle":                       {state: status.Held, owned: true, quiet: time.Hour},
		"a lapsed lease has no manager":                   {state: status.Lapsed, owned: true, takes: true},
		"a lease that is gone neither":                    {state: status.Absent, takes: true},
		"nothing is done before something is known":       {},
		"who begins takes from a lease that is hidden":    {state: status.Unknown, takes: true},
		"who has lost the pool to such a one waits":       {state: status.Unknown, owned: true, quiet: quietFor - 1},
		"… until it has lain idle for long enough":        {state: status.Unknown, owned: true, quiet: quietFor, takes: true},
		"… and longer each time, against quarrels":        {state: status.Unknown, owned: true, quiet: 2*quietFor - 1, takings: 1},
		"… but not for ever":                              {state: status.Unknown, owned: true, quiet: 32 * quietFor, takings: 60, takes: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.takes, rival{state: c.state}.takes(c.owned, c.quiet, c.takings))
		})
	}
}

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
		return m.quiet(&pass{scene: scene{now: now.Add(after), cache: one}, key: key{"ci", "p"}, anchor: a, before: before})
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
