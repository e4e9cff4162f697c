package plan_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity/plan"
)

// TestWhatAQuotaLeavesIsBelievedOnceItHolds: four pause pods fill a quota of four, and each is counted before it is shown.
func TestWhatAQuotaLeavesIsBelievedOnceItHolds(t *testing.T) {
	var r plan.Rooms
	at := func(d time.Duration) time.Time { return now.Add(d) }
	is := func(d time.Duration, held, most int, again time.Duration) {
		t.Helper()
		got, look := r.For(at(d), held)
		require.Equal(t, most, got)
		if again == 0 {
			require.Zero(t, look)
		} else {
			require.Equal(t, at(again), look)
		}
	}
	is(0, 3, plan.NoBound, 0)
	r.See(at(0), 4)
	is(0, 0, 4, 0)
	is(0, 7, 4, 0)
	r.See(at(2*time.Second), 3) // the quota counts the fourth, and the watch shows three
	is(2*time.Second, 4, 4, 3*time.Second)
	is(2*time.Second, 2, 3, 3*time.Second) // nor does one more come meanwhile
	r.See(at(2100*time.Millisecond), 4)
	r.See(at(2100*time.Millisecond), 4)
	is(2200*time.Millisecond, 4, 4, 3*time.Second)
	is(3050*time.Millisecond, 3, 3, 3100*time.Millisecond)
	is(4*time.Second, 3, 4, 0)
	r.See(at(5*time.Second), 1) // somebody has come for good
	is(5500*time.Millisecond, 4, 4, 6*time.Second)
	is(6*time.Second, 4, 1, 0)
}

// TestRoomsNeverInventRoom: the answer was seen of late, or is what is held.
func TestRoomsNeverInventRoom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var r plan.Rooms
		last, steps := 0, rnd.IntN(8)+1
		var clock time.Duration
		most := 0
		for range steps {
			clock += time.Duration(rnd.IntN(900)) * time.Millisecond
			last = rnd.IntN(6)
			most = max(most, last)
			r.See(now.Add(clock), last)
		}
		held := rnd.IntN(8)
		got, again := r.For(now.Add(clock), held)
		require.LessOrEqual(t, got, most)
		for !again.IsZero() {
			got, again = r.For(again, held)
		}
		require.Equal(t, last, got, "what holds is believed in the end")
	}
}

// TestWhatIsTooMuchAtOnceIsTriedMoreRarely: somebody else counts on the same room, or pods are larger than they look.
func TestWhatIsTooMuchAtOnceIsTriedMoreRarely(t *testing.T) {
	var r plan.Rooms
	held, tries := 4, 0
	for at := time.Duration(0); at < 10*time.Minute; at += 100 * time.Millisecond {
		most := 5
		if held == 5 {
			most = 4
		}
		r.See(now.Add(at), most)
		next, _ := r.For(now.Add(at), held)
		if next > held {
			tries++
		}
		held = next
	}
	require.Greater(t, tries, 3)
	require.Less(t, tries, 12)
	held = 4
	r.See(now.Add(time.Hour), 5)
	next, _ := r.For(now.Add(time.Hour+2*time.Second), held)
	require.Equal(t, 5, next)
	_, _ = r.For(now.Add(time.Hour+2*time.Second), next)
	r.See(now.Add(2*time.Hour), 3) // it was right for an hour
	next, _ = r.For(now.Add(2*time.Hour+time.Second), 5)
	require.Equal(t, 3, next)
	r.See(now.Add(2*time.Hour+2*time.Second), 5)
	next, _ = r.For(now.Add(2*time.Hour+3*time.Second), 3)
	require.Equal(t, 5, next, "jobs come and go, and that is no reason to wait")
}
