package leases

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func leaseOfHolder(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: new(int32(9)),
	}}
}

func TestALeaseIsHeldWhileItIsRenewed(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	read := func(r Rival, after time.Duration, lease *coordinationv1.Lease) Rival {
		return r.after(now.Add(after), lease)
	}

	require.Equal(t, Absent, read(Rival{}, 0, nil).State)
	require.Equal(t, Lapsed, read(Rival{}, 0, leaseOfHolder("", now)).State, "given back")
	require.Equal(t, Held, read(Rival{}, 0, leaseOfHolder("m", now.Add(-time.Second))).State)

	hour := now.Add(-time.Hour) // it has ended long ago, or its manager's clock is an hour slow
	r := read(Rival{}, 0, leaseOfHolder("m", hour))
	require.Empty(t, r.State)
	require.Equal(t, now.Add(soon), r.Again())
	require.Equal(t, Held, read(r, 2*time.Second, leaseOfHolder("m", hour.Add(time.Second))).State, "its clock is slow")
	r = read(r, 8*time.Second, leaseOfHolder("m", hour))
	require.Empty(t, r.State)
	r = read(r, 10*time.Second, leaseOfHolder("m", hour))
	require.Equal(t, Lapsed, r.State)
	require.Equal(t, Held, read(r, 20*time.Second, leaseOfHolder("other", now)).State)

	r = read(Rival{}, 0, leaseOfHolder("m", now.Add(time.Hour))) // its clock is fast
	require.Equal(t, Held, r.State)
	require.Equal(t, now.Add(every), r.Again())
	require.Equal(t, Lapsed, read(r, every, leaseOfHolder("m", now.Add(time.Hour))).State)
}

func TestNothingIsTakenFromManagersThatHoldTheirLease(t *testing.T) {
	for sentence, c := range map[string]struct {
		state   State
		owned   bool
		quiet   time.Duration
		takings int
		takes   bool
	}{
		"what a held lease has is left, whoever came first": {state: Held},
		"… also where it lies idle":                         {state: Held, owned: true, quiet: time.Hour},
		"a lapsed lease has no manager":                     {state: Lapsed, owned: true, takes: true},
		"a lease that is gone neither":                      {state: Absent, takes: true},
		"nothing is done before something is known":         {},
		"who begins takes from a lease that is hidden":      {state: Unknown, takes: true},
		"who has lost something to such a one waits":        {state: Unknown, owned: true, quiet: quietFor - 1},
		"… until it has lain idle for long enough":          {state: Unknown, owned: true, quiet: quietFor, takes: true},
		"… and longer each time, against quarrels":          {state: Unknown, owned: true, quiet: 2*quietFor - 1, takings: 1},
		"… but not for ever":                                {state: Unknown, owned: true, quiet: 32 * quietFor, takings: 60, takes: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			contest := &Contest{owned: c.owned, takings: c.takings}
			require.Equal(t, c.takes, contest.Takes(Rival{State: c.state}, c.quiet))
		})
	}
}

func TestAContestRemembersWhatWasTakenAndLeft(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	c := &Contest{}
	_, waits := c.Waits(now)
	require.False(t, waits)
	require.True(t, c.Leaves("a/b"))
	require.False(t, c.Leaves("a/b"), "that was said")
	require.True(t, c.Leaves("c/d"))
	c.Settled()
	require.True(t, c.Leaves("c/d"), "that is news again")

	c.Took(now)
	until, waits := c.Waits(now)
	require.True(t, waits)
	require.Equal(t, now.Add(takeOverPause), until)
	require.True(t, c.Takes(Rival{State: Unknown}, 0), "it has never been ours")
	c.Owned()
	require.False(t, c.Takes(Rival{State: Unknown}, quietFor-1))
	require.True(t, c.Takes(Rival{State: Unknown}, quietFor))
	c.Took(now)
	require.False(t, c.Takes(Rival{State: Unknown}, quietFor), "longer each time, against quarrels")
}

func TestQuietIsCountedWhileNothingIsDoneThatIsDue(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	c := &Contest{}
	require.Zero(t, c.Quiet(now, "1", false))
	require.Zero(t, c.Quiet(now.Add(time.Hour), "1", true))
	require.Equal(t, time.Minute, c.Quiet(now.Add(time.Hour+time.Minute), "1", true))
	require.Zero(t, c.Quiet(now.Add(time.Hour+2*time.Minute), "2", true), "somebody writes")
	require.Equal(t, time.Second, c.Quiet(now.Add(time.Hour+2*time.Minute+time.Second), "2", true))
	c.Took(now)
	require.Zero(t, c.Quiet(now.Add(2*time.Hour), "2", true), "it begins anew")
}
