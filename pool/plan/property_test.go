package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool/plan"
)

// seconds is a whole number of seconds below n, so that edges are hit.
func seconds(rng *rand.Rand, n int) time.Duration { return time.Duration(rng.IntN(n)) * time.Second }

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func anyWant(rng *rand.Rand) plan.Want {
	want := plan.Want{
		Count:            rng.IntN(12),
		ScaleFactor:      pick(rng, 0, 0, 0.5, 1, 1.5),
		ScaleFactorLimit: pick(rng, 0, 0, 3, 8),
		IdleTime:         pick(rng, 0, 20*time.Second, 5*time.Minute, 30*time.Minute),
		Template:         template,
		Limit:            pick(rng, 0, 0, 0, 5, 12),
		Burst:            pick(rng, 1, 3, 100),
		Paused:           rng.IntN(15) == 0,
		Drained:          rng.IntN(15) == 0,
		Removed:          rng.IntN(15) == 0,
	}
	if want.Removed && rng.IntN(2) == 0 {
		want.Replaced, want.Keep = true, rng.IntN(5)
	}
	if rng.IntN(8) == 0 {
		want.NotBefore = noon().Add(seconds(rng, 20) - 10*time.Second)
	}
	return want
}

func anyHave(rng *rand.Rand) plan.Have {
	have := plan.Have{Name: "m", Others: plan.Others{Live: pick(rng, 0, 0, 2), Ending: pick(rng, 0, 0, 1)}}
	for _, name := range []string{"a", "z"}[:pick(rng, 0, 0, 1, 2)] {
		d := plan.Demand{Name: name, Want: rng.IntN(8), Stock: rng.IntN(6)}
		have.Others.Live += d.Stock
		have.Others.Pools = append(have.Others.Pools, d)
	}
	if rng.IntN(5) == 0 {
		have.Former = plan.Former{Stock: rng.IntN(6), Claimed: rng.IntN(3)}
		have.Others.Live += have.Former.Stock + have.Former.Claimed
	}
	for i := range rng.IntN(16) {
		have.Pods = append(have.Pods, anyPod(rng, fmt.Sprintf("p%02d", i)))
	}
	if rng.IntN(3) == 0 {
		have.History = plan.History{
			Failures: rng.IntN(5), Until: noon().Add(seconds(rng, 60) - 30*time.Second),
			FailedBorn: ago(seconds(rng, 60)), ProvenBorn: ago(seconds(rng, 60)), Reason: "Crash", Message: "exit 1",
		}
	}
	return have
}

func anyPod(rng *rand.Rand, name string) plan.Pod {
	own := pick(rng, 0, 20*time.Second, 5*time.Minute, 30*time.Minute)
	outlooks := []plan.Outlook{plan.Fine, plan.Fine, plan.Fine, plan.Waits, plan.Blocked, plan.Over, plan.Lost}
	pod := plan.Pod{
		Name: name, UID: "uid-" + name, IdleTime: own, Template: pick(rng, template, template, "t0"),
		State: pick(rng, plan.Warming, plan.Warming, plan.Idle, plan.Idle, plan.Idle, plan.Claimed, plan.Claimed,
			plan.Expired, plan.Failed, plan.Finished, plan.Ending),
		Created: ago(seconds(rng, 3600)),
	}
	since := min(seconds(rng, 3600), noon().Sub(pod.Created))
	switch pod.State {
	case plan.Warming:
		pod.Moved = ago(since)
		if outlook := pick(rng, outlooks...); outlook != plan.Fine {
			trouble(outlook, pick(rng, "ImagePull", "Crash"))(&pod)
		}
	case plan.Idle:
		pod.Ready = ago(since)
	case plan.Claimed:
		if rng.IntN(4) > 0 {
			pod.Ready = ago(since)
		}
		if rng.IntN(3) > 0 {
			pod.Deadline = noon().Add(30*time.Minute - seconds(rng, 3600))
		}
	case plan.Failed:
		pod.Ended = ago(since)
		trouble(pick(rng, plan.Over, plan.Lost), "Crash")(&pod)
	case plan.Expired, plan.Finished, plan.Ending:
		pod.Ended = ago(since)
	}
	return pod
}

// applied is what there is once a plan was carried out: what was deleted is ending, what was created is warming.
func applied(have plan.Have, r plan.Result, now time.Time, names string) plan.Have {
	next := plan.Have{Name: have.Name, Others: have.Others, Former: have.Former, History: r.History, Pods: slices.Clone(have.Pods)}
	for i := range next.Pods {
		if slices.ContainsFunc(r.Delete, func(d plan.Deletion) bool { return d.UID == next.Pods[i].UID }) {
			next.Pods[i].State, next.Pods[i].Trouble = plan.Ending, plan.Trouble{}
		}
	}
	for i := range r.Create {
		name := fmt.Sprintf("%s%d", names, i)
		next.Pods = append(next.Pods, plan.Pod{
			Name: name, UID: "uid-" + name, State: plan.Warming, Created: now, Moved: now, IdleTime: 30 * time.Minute, Template: template,
		})
	}
	return next
}

func count(pods []plan.Pod, states ...plan.State) int {
	n := 0
	for _, pod := range pods {
		if slices.Contains(states, pod.State) {
			n++
		}
	}
	return n
}

// TestSafety holds what a plan never does, whatever it is given.
func TestSafety(t *testing.T) {
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		want, have := anyWant(rng), anyHave(rng)
		r := plan.Plan(noon(), want, have)
		what := fmt.Sprintf("seed %d", seed)

		byUID := map[string]plan.Pod{}
		for _, pod := range have.Pods {
			byUID[pod.UID] = pod
		}
		seen := map[string]bool{}
		for _, d := range r.Delete {
			pod, known := byUID[d.UID]
			require.True(t, known, what)
			if pod.State == plan.Claimed {
				require.False(t, pod.Deadline.IsZero() || noon().Before(pod.Deadline.Add(5*time.Minute)), "deletes a claimed pod: "+what)
			}
			require.NotEqual(t, plan.Ending, pod.State, "deletes twice: "+what)
			require.False(t, seen[d.UID], "deletes twice: "+what)
			seen[d.UID] = true
			if pod.State == plan.Finished {
				require.GreaterOrEqual(t, noon().Sub(pod.Ended), 5*time.Minute, what)
			}
			if pod.State == plan.Idle && d.Reason == plan.DeleteSurplus {
				require.GreaterOrEqual(t, noon().Sub(pod.Ready), want.IdleTime, what)
			}
		}
		require.GreaterOrEqual(t, r.Create, 0, what)
		require.LessOrEqual(t, r.Create, want.Burst, what)
		if r.Create > 0 {
			after := applied(have, r, noon(), "new")
			stock := count(after.Pods, plan.Idle, plan.Warming) - outOfReach(after.Pods)
			present := stock - ofOldTemplate(after.Pods)
			require.LessOrEqual(t, present, r.Wanted+r.Counts.Expiring, "creates beyond the target: "+what)
			replaced := stock - present + have.Former.Stock
			if replaced > 0 {
				require.LessOrEqual(t, stock+have.Former.Stock, r.Wanted+plan.Surge(r.Wanted)+r.Counts.Expiring, "creates beyond the surge: "+what)
			}
			if want.Limit > 0 {
				held := count(after.Pods, plan.Idle, plan.Warming, plan.Claimed, plan.Ending)
				require.LessOrEqual(t, held+have.Others.Live+have.Others.Ending, want.Limit, "creates beyond the limit: "+what)
			}
			require.False(t, want.Paused || want.Removed || want.Drained, what)
			require.False(t, noon().Before(want.NotBefore) || noon().Before(r.History.Until), what)
		}
		if !r.RequeueAt.IsZero() {
			require.True(t, r.RequeueAt.After(noon()), what)
		}
		require.True(t, slices.IsSortedFunc(r.Delete, func(a, b plan.Deletion) int { return strings.Compare(a.Name, b.Name) }), what)
	}
}

// ofOldTemplate counts the pods that are to be replaced.
func ofOldTemplate(pods []plan.Pod) int {
	return len(slices.DeleteFunc(slices.Clone(pods), func(p plan.Pod) bool {
		return p.Template == template || p.State != plan.Idle && p.State != plan.Warming || p.State == plan.Warming && p.Trouble.Outlook == plan.Lost
	}))
}

func outOfReach(pods []plan.Pod) int {
	return len(slices.DeleteFunc(slices.Clone(pods), func(p plan.Pod) bool {
		return p.State != plan.Warming || p.Trouble.Outlook != plan.Lost
	}))
}

// TestAPlanThatIsCarriedOutLeavesNothing: what was decided once is not decided again.
func TestAPlanThatIsCarriedOutLeavesNothing(t *testing.T) {
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		want, have := anyWant(rng), anyHave(rng)
		r := plan.Plan(noon(), want, have)
		for i := 0; r.Again || replacesWarming(have, r); i++ {
			require.Less(t, i, 20, "seed %d", seed)
			have = applied(have, r, noon(), fmt.Sprintf("new%d-", i))
			r = plan.Plan(noon(), want, have)
		}
		have = applied(have, r, noon(), "last")
		next := plan.Plan(noon(), want, have)
		what := fmt.Sprintf("seed %d", seed)
		require.Zero(t, next.Create, what)
		require.Empty(t, next.Delete, what)
		require.Equal(t, r.History, next.History, what)
	}
}

// replacesWarming says whether a plan holds back creates until pods that it deletes are seen to end.
func replacesWarming(have plan.Have, r plan.Result) bool {
	return slices.ContainsFunc(have.Pods, func(p plan.Pod) bool {
		return p.State == plan.Warming && slices.ContainsFunc(r.Delete, func(d plan.Deletion) bool { return d.UID == p.UID && d.Reason == plan.DeleteReplaced })
	})
}

// TestNothingChangesBeforeRequeueAt: between two looks time alone changes no decision, so no deadline is slept through.
func TestNothingChangesBeforeRequeueAt(t *testing.T) {
	for seed := range uint64(10000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		want, have := anyWant(rng), anyHave(rng)
		want.Burst = 100
		r := plan.Plan(noon(), want, have)
		for i := range 3 {
			have = applied(have, r, noon(), fmt.Sprintf("new%d-", i))
			r = plan.Plan(noon(), want, have)
		}
		until := r.RequeueAt
		if until.IsZero() {
			until = noon().Add(2 * time.Hour)
		}
		at := until.Add(-time.Nanosecond)
		have.History = r.History
		later := plan.Plan(at, want, have)
		what := fmt.Sprintf("seed %d", seed)
		require.Zero(t, later.Create, what)
		require.Empty(t, later.Delete, what)
		require.Equal(t, r.Counts, later.Counts, what)
		require.Equal(t, r.Shortfall, later.Shortfall, what)
	}
}

// TestACountOfZeroIsZero: once the idle time is over, nothing that is idle stays.
func TestACountOfZeroIsZero(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		have := anyHave(rng)
		want := wants(0, func(w *plan.Want) { w.IdleTime = pick(rng, 0, time.Minute, 30*time.Minute) })
		last := noon()
		for _, pod := range have.Pods {
			if end := pod.Ready.Add(max(want.IdleTime, pod.IdleTime+time.Minute)); pod.State == plan.Idle && end.After(last) {
				last = end
			}
		}
		after := applied(have, plan.Plan(last, want, have), last, "new")
		require.Zero(t, count(after.Pods, plan.Idle, plan.Warming)-outOfReach(after.Pods), "seed %d", seed)
	}
}

// TestReadyPodsNeverDip lives through some hours of a pool in a cluster where pods take a while to start, expire by
// themselves and are claimed now and then: but for claims and the first fill, the count of idle pods never falls short.
func TestReadyPodsNeverDip(t *testing.T) {
	const start = 8 * time.Second
	rng := rand.New(rand.NewPCG(7, 6))
	want := wants(20)
	have := plan.Have{}
	filled, made := false, 0
	claimedAt := noon()
	for now := noon(); now.Before(noon().Add(6 * time.Hour)); now = now.Add(time.Second) {
		for i := range have.Pods {
			pod := &have.Pods[i]
			switch {
			case pod.State == plan.Warming && !now.Before(pod.Created.Add(start)):
				pod.State, pod.Ready = plan.Idle, now
			case pod.State == plan.Idle && !now.Before(pod.Ready.Add(pod.IdleTime)):
				pod.State, pod.Ended = plan.Expired, now
			}
		}
		have.Pods = slices.DeleteFunc(have.Pods, func(p plan.Pod) bool { return p.State == plan.Ending })
		if filled && rng.IntN(600) == 0 {
			for i := range have.Pods {
				if have.Pods[i].State == plan.Idle {
					have.Pods[i].State, claimedAt = plan.Claimed, now
					break
				}
			}
		}
		r := plan.Plan(now, want, have)
		made += r.Create
		have = applied(have, r, now, fmt.Sprintf("%d-", now.Unix()))
		idle := count(have.Pods, plan.Idle)
		filled = filled || idle == 20
		if filled && now.Sub(claimedAt) > start+time.Second {
			require.GreaterOrEqual(t, idle, 20, "at %s", now)
		}
		require.LessOrEqual(t, idle+count(have.Pods, plan.Warming), 40, "at %s", now)
	}
	require.Greater(t, made, 200, "pods were rotated")
	require.Less(t, made, 400)
}
