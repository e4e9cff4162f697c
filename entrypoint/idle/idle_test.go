package idle_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/idle"
)

var (
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	limits = idle.Limits{Idle: 30 * time.Minute, Abandon: 8 * time.Minute}
)

func TestNext(t *testing.T) {
	after := func(d time.Duration) time.Time { return start.Add(d) }
	cases := map[string]struct {
		limits idle.Limits
		state  idle.State
		now    time.Time
		action idle.Action
		again  time.Time
	}{
		"an unclaimed pod sleeps until its idle time is over": {
			limits: limits, state: idle.State{Started: start, Both: true}, now: after(time.Minute),
			action: idle.Wait, again: after(30 * time.Minute),
		},
		"an unclaimed pod expires when its idle time is over": {
			limits: limits, state: idle.State{Started: start, Both: true}, now: after(30 * time.Minute), action: idle.Expire,
		},
		"a container waits longer for the other one to come up": {
			limits: limits, state: idle.State{Started: start}, now: after(30 * time.Minute), action: idle.Wait, again: after(40 * time.Minute),
		},
		"but not for ever": {
			limits: limits, state: idle.State{Started: start}, now: after(40 * time.Minute), action: idle.Expire,
		},
		"without an idle time an unclaimed pod never wakes up": {
			limits: idle.Limits{Abandon: time.Minute}, state: idle.State{Started: start}, now: after(1000 * time.Hour), action: idle.Wait,
		},
		"an expired pod ends, however young this container is": {
			limits: limits, state: idle.State{Started: start, Claim: idle.Expired}, now: start, action: idle.End,
		},
		"a claimed pod doesn't care for its idle time": {
			limits: limits, state: idle.State{Started: start, Claim: idle.Claimed, Seen: after(time.Hour)}, now: after(time.Hour),
			action: idle.Wait, again: after(time.Hour + time.Minute),
		},
		"a claimed pod with a driver shows it every beat, for ever": {
			limits: limits, state: idle.State{Started: start, Claim: idle.Claimed, Attached: true, Seen: start}, now: after(1000 * time.Hour),
			action: idle.Wait, again: after(1000*time.Hour + time.Minute),
		},
		"the last look at a pod without a driver is not later than its end": {
			limits: limits, state: idle.State{Started: start, Claim: idle.Claimed, Seen: start}, now: after(7*time.Minute + 30*time.Second),
			action: idle.Wait, again: after(8 * time.Minute),
		},
		"a claimed pod that no driver visits is abandoned": {
			limits: limits, state: idle.State{Started: start, Claim: idle.Claimed, Seen: start}, now: after(8 * time.Minute), action: idle.Abandon,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			action, again := idle.Next(c.limits, c.state, c.now)
			require.Equal(t, c.action, action)
			require.Equal(t, c.again, again)
		})
	}
}

func TestLook(t *testing.T) {
	now := start.Add(time.Hour)
	claimed := idle.State{Started: start, Claim: idle.Claimed, Seen: start, Mark: start}
	cases := map[string]struct {
		state idle.State
		sight idle.Sight
		want  idle.State
	}{
		"the claim itself is a sign of a driver": {
			state: idle.State{Started: start}, sight: idle.Sight{Claim: idle.Claimed},
			want: idle.State{Started: start, Claim: idle.Claimed, Seen: now},
		},
		"a claim is never taken back": {
			state: claimed, sight: idle.Sight{Claim: idle.Unclaimed, Mark: start}, want: claimed,
		},
		"nothing new is no sign": {
			state: claimed, sight: idle.Sight{Mark: start}, want: claimed,
		},
		"a newer mark is a driver in the other container": {
			state: claimed, sight: idle.Sight{Mark: start.Add(time.Second)},
			want: idle.State{Started: start, Claim: idle.Claimed, Seen: now, Mark: start.Add(time.Second)},
		},
		"an older mark is one too, the clock of the node was set back": {
			state: claimed, sight: idle.Sight{Mark: start.Add(-time.Hour)},
			want: idle.State{Started: start, Claim: idle.Claimed, Seen: now, Mark: start.Add(-time.Hour)},
		},
		"a driver that came and went between two looks was there": {
			state: claimed, sight: idle.Sight{Visited: true, Mark: start},
			want: idle.State{Started: start, Claim: idle.Claimed, Seen: now, Mark: start},
		},
		"the idle clock starts with the later container": {
			state: idle.State{Started: start}, sight: idle.Sight{Both: true}, want: idle.State{Started: now, Both: true},
		},
		"and starts once": {
			state: idle.State{Started: start, Both: true}, sight: idle.Sight{Both: true}, want: idle.State{Started: start, Both: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.state.Look(c.sight, now)) })
	}
}

// Whatever happens to a pod of two containers, it ends in the right way and at the right time: never abandoned within
// the abandon time of a driver's presence, never expired after a claim, and gone soon after both limits.
func TestTwoContainersAgree(t *testing.T) {
	for seed := range uint64(200) {
		simulate(t, seed)
	}
}

// simulate lets time pass in steps of a second, with visits of drivers at random.
func simulate(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	claim, mark := idle.Unclaimed, time.Time{}
	states := [2]idle.State{{Started: start}, {Started: start.Add(time.Duration(random.IntN(20)) * time.Second)}}
	wake := [2]time.Time{start, states[1].Started}
	claimAt := start.Add(time.Duration(random.IntN(2*30*60)) * time.Second)
	lastPresence, attached := claimAt, -1
	for now := start; ; now = now.Add(time.Second) {
		visited := -1
		if claim == idle.Unclaimed && !now.Before(claimAt) {
			claim, mark, wake = idle.Claimed, now, [2]time.Time{now, now}
		}
		if claim == idle.Claimed && now.Before(claimAt.Add(time.Hour)) && random.IntN(200) == 0 {
			if attached >= 0 {
				visited, attached = attached, -1
			} else {
				attached = random.IntN(2)
				visited = attached
			}
			wake[visited] = now
		} else if !now.Before(claimAt.Add(time.Hour)) && attached >= 0 {
			visited, attached = attached, -1
			wake[visited] = now
		}
		if attached >= 0 || visited >= 0 {
			lastPresence = now
		}
		for i := range states {
			if wake[i].IsZero() || now.Before(wake[i]) {
				continue
			}
			if i == attached || i == visited {
				mark = now
			}
			states[i] = states[i].Look(idle.Sight{Claim: claim, Both: true, Attached: i == attached, Visited: i == visited, Mark: mark}, now)
			action, again := idle.Next(limits, states[i], now)
			wake[i] = again
			switch action {
			case idle.Expire:
				require.Equal(t, idle.Unclaimed, claim, "seed %d", seed)
				claim, wake = idle.Expired, [2]time.Time{now, now}
			case idle.End:
				require.Equal(t, idle.Expired, claim, "seed %d", seed)
				require.True(t, now.Sub(start) >= limits.Idle && now.Sub(start) <= limits.Idle+time.Minute, "seed %d", seed)
				return
			case idle.Abandon:
				require.Equal(t, idle.Claimed, claim, "seed %d", seed)
				require.GreaterOrEqual(t, now.Sub(lastPresence), limits.Abandon, "seed %d", seed)
				require.LessOrEqual(t, now.Sub(lastPresence), limits.Abandon+2*limits.Beat(), "seed %d", seed)
				return
			}
		}
		require.Less(t, now.Sub(start), 4*time.Hour, "seed %d: the pod doesn't end", seed)
	}
}
