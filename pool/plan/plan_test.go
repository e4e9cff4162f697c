package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool/plan"
)

const template = "t1"

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return noon().Add(-d) }

// idle is a pod that became Ready some time before noon.
func idle(name string, since time.Duration, changes ...func(*plan.Pod)) plan.Pod {
	return with(plan.Pod{
		Name: name, UID: "uid-" + name, State: plan.Idle, Created: ago(since + 2*time.Second), Ready: ago(since),
		IdleTime: 30 * time.Minute, Template: template,
	}, changes)
}

// warming is a pod that was created some time before noon.
func warming(name string, since time.Duration, changes ...func(*plan.Pod)) plan.Pod {
	return with(plan.Pod{
		Name: name, UID: "uid-" + name, State: plan.Warming, Created: ago(since), Moved: ago(since),
		IdleTime: 30 * time.Minute, Template: template,
	}, changes)
}

func claimed(name string, changes ...func(*plan.Pod)) plan.Pod {
	return with(plan.Pod{Name: name, UID: "uid-" + name, State: plan.Claimed, Created: ago(time.Hour), Ready: ago(50 * time.Minute), Template: template}, changes)
}

func ended(name string, state plan.State, since time.Duration, changes ...func(*plan.Pod)) plan.Pod {
	return with(plan.Pod{Name: name, UID: "uid-" + name, State: state, Created: ago(since + time.Minute), Ended: ago(since), Template: template}, changes)
}

func with(pod plan.Pod, changes []func(*plan.Pod)) plan.Pod {
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

func trouble(outlook plan.Outlook, reason string) func(*plan.Pod) {
	return func(p *plan.Pod) {
		p.Trouble = plan.Trouble{Outlook: outlook, Reason: reason, Message: reason + " of " + p.Name}
	}
}

func idleTime(d time.Duration) func(*plan.Pod) { return func(p *plan.Pod) { p.IdleTime = d } }

func ofTemplate(t string) func(*plan.Pod) { return func(p *plan.Pod) { p.Template = t } }

func many(n int, pod func(name string, since time.Duration, changes ...func(*plan.Pod)) plan.Pod, since time.Duration) []plan.Pod {
	var pods []plan.Pod
	for i := range n {
		pods = append(pods, pod(fmt.Sprintf("p%03d", i), since))
	}
	return pods
}

func wants(count int, changes ...func(*plan.Want)) plan.Want {
	w := plan.Want{Count: count, IdleTime: 30 * time.Minute, Template: template, Burst: 100}
	for _, change := range changes {
		change(&w)
	}
	return w
}

func limited(n int) func(*plan.Want) { return func(w *plan.Want) { w.Limit = n } }

type deletes map[string]plan.Reason

// situation is what there is and what comes of it.
type situation struct {
	want      plan.Want
	have      plan.Have
	create    int
	deletes   deletes
	wanted    int // 0 = want.Count, -1 = 0
	shortfall string
	again     bool
}

func TestPlan(t *testing.T) {
	check(t, map[string]situation{
		"an empty pool is filled": {
			want: wants(3), create: 3,
		},
		"a full pool is left alone": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), idle("b", time.Minute)}},
		},
		"a warming pod counts, so that it isn't created twice": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{warming("a", time.Second), idle("b", time.Minute)}},
		},
		"a claimed pod is replaced": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{claimed("a"), idle("b", time.Minute)}}, create: 1,
		},
		"a pod that is ending is neither idle nor free": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{ended("a", plan.Ending, 0), idle("b", time.Minute)}}, create: 1,
		},
		"the end of a claimed pod causes nothing": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), ended("b", plan.Ending, 0)}},
		},
		"creates stop at the burst, and go on": {
			want: wants(10, func(w *plan.Want) { w.Burst = 4 }), create: 4, again: true,
		},
		"the scale factor counts claimed pods": {
			want: wants(1, func(w *plan.Want) { w.ScaleFactor = 0.5 }),
			have: plan.Have{Pods: many(5, func(n string, _ time.Duration, _ ...func(*plan.Pod)) plan.Pod { return claimed(n) }, 0)}, wanted: 3, create: 3,
		},
		"the scale factor's limit caps its part": {
			want: wants(1, func(w *plan.Want) { w.ScaleFactor, w.ScaleFactorLimit = 2, 4 }),
			have: plan.Have{Pods: many(5, func(n string, _ time.Duration, _ ...func(*plan.Pod)) plan.Pod { return claimed(n) }, 0)}, wanted: 4, create: 4,
		},
		"the scale factor's limit doesn't cap idle_count": {
			want: wants(6, func(w *plan.Want) { w.ScaleFactor, w.ScaleFactorLimit = 2, 4 }),
			have: plan.Have{Pods: []plan.Pod{claimed("a")}}, wanted: 6, create: 6,
		},
		"100 claimed × 1.1 are 110, not 111": {
			want: wants(0, func(w *plan.Want) { w.ScaleFactor, w.Burst = 1.1, 200 }),
			have: plan.Have{Pods: many(100, func(n string, _ time.Duration, _ ...func(*plan.Pod)) plan.Pod { return claimed(n) }, 0)}, wanted: 110, create: 110,
		},
		"the limit bounds creates": {
			want: wants(5, func(w *plan.Want) { w.Limit = 4 }),
			have: plan.Have{Pods: []plan.Pod{claimed("a"), idle("b", time.Minute)}}, create: 2, shortfall: plan.ReasonLimit,
		},
		"pods of the runner's other pools, and ending ones, take of the limit": {
			want: wants(5, func(w *plan.Want) { w.Limit = 6 }),
			have: plan.Have{Pods: []plan.Pod{ended("a", plan.Ending, 0)}, Others: plan.Others{Live: 2, Ending: 1}}, create: 2, shortfall: plan.ReasonLimit,
		},
		"above the limit unclaimed pods go at once, the least ready first": {
			want:    wants(3, func(w *plan.Want) { w.Limit = 4 }),
			have:    plan.Have{Pods: []plan.Pod{claimed("a"), claimed("b"), warming("c", time.Second), idle("d", time.Minute), idle("e", 2*time.Minute)}, Others: plan.Others{Live: 1}},
			deletes: deletes{"c": plan.DeleteLimit, "e": plan.DeleteLimit}, shortfall: plan.ReasonLimit,
		},
		"above the limit by what is ending already nothing more goes": {
			want: wants(1, func(w *plan.Want) { w.Limit = 1 }),
			have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), ended("b", plan.Ending, 0)}},
		},
		"surplus that isn't ready goes at once": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), warming("b", time.Second)}},
			deletes: deletes{"b": plan.DeleteSurplus},
		},
		"of surplus that isn't ready those without a node go first, then the youngest": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", 3*time.Second), warming("b", time.Second), warming("c", 2*time.Second), warming("d", 9*time.Second, trouble(plan.Waits, "Unschedulable"))}},
			deletes: deletes{"b": plan.DeleteSurplus, "c": plan.DeleteSurplus, "d": plan.DeleteSurplus},
		},
		"surplus that is idle stays for the idle time": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), idle("b", 20*time.Minute)}},
		},
		"surplus that was idle for the idle time in force goes, the oldest first": {
			want:    wants(1, func(w *plan.Want) { w.IdleTime = 5 * time.Minute }),
			have:    plan.Have{Pods: []plan.Pod{idle("a", 6*time.Minute), idle("b", 7*time.Minute), idle("c", 4*time.Minute)}},
			deletes: deletes{"a": plan.DeleteSurplus, "b": plan.DeleteSurplus},
		},
		"surplus with an idle time of 0 in force goes at once": {
			want:    wants(0, func(w *plan.Want) { w.IdleTime = 0 }),
			have:    plan.Have{Pods: []plan.Pod{idle("a", 0, idleTime(0))}},
			deletes: deletes{"a": plan.DeleteSurplus},
		},
		"a pod that expires soon is replaced before it goes, and goes by itself": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{idle("a", 29*time.Minute+30*time.Second), idle("b", time.Minute)}}, create: 1,
		},
		"a pod past its idle time that hasn't ended is deleted": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", 32*time.Minute), idle("b", time.Minute)}},
			deletes: deletes{"a": plan.DeleteOverdue},
		},
		"a pod without an idle time is never too old": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", 1000*time.Hour, idleTime(0))}},
		},
		"expired pods are removed and replaced": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{ended("a", plan.Expired, time.Second)}},
			deletes: deletes{"a": plan.DeleteExpired}, create: 1,
		},
		"a claimed pod that has ended is left to its driver for a while": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), ended("b", plan.Finished, 4*time.Minute)}},
		},
		"a claimed pod that has ended long ago is removed": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), ended("b", plan.Finished, 5*time.Minute)}},
			deletes: deletes{"b": plan.DeleteFinished},
		},
		"a failed pod is removed, and nothing is made for a moment": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{ended("a", plan.Failed, time.Second, trouble(plan.Over, "Crash"))}},
			deletes: deletes{"a": plan.DeleteFailed}, shortfall: "Crash",
		},
		"a pod whose container has ended is as good as failed": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", time.Second, trouble(plan.Over, "Crash"))}},
			deletes: deletes{"a": plan.DeleteFailed}, shortfall: "Crash",
		},
		"a pod that was evicted is replaced at once": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{ended("a", plan.Failed, time.Second, trouble(plan.Lost, ""))}},
			deletes: deletes{"a": plan.DeleteLost}, create: 1,
		},
		"a pod out of reach is replaced and kept: its node may come back": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", time.Hour, trouble(plan.Lost, ""))}}, create: 1,
		},
		"pods that wait for a node are held, and the rest is made so that an autoscaler sees all": {
			want:   wants(4),
			have:   plan.Have{Pods: []plan.Pod{warming("a", time.Hour, trouble(plan.Waits, "Unschedulable")), warming("b", time.Minute, trouble(plan.Waits, "Unschedulable"))}},
			create: 2, shortfall: "Unschedulable",
		},
		"a pool that has what it wants is not short, whatever else is wrong": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), ended("b", plan.Failed, time.Second, trouble(plan.Over, "Crash"))}},
			deletes: deletes{"b": plan.DeleteFailed},
		},
		"a slow start is named and held": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", 6*time.Minute)}}, shortfall: plan.ReasonSlow,
		},
		"a start that gets nowhere for half an hour is replaced, with a pause": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", 31*time.Minute)}},
			deletes: deletes{"a": plan.DeleteStuck}, shortfall: plan.ReasonSlow,
		},
		"a pod that got its node late isn't slow": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{warming("a", 2*time.Hour, func(p *plan.Pod) { p.Moved = ago(time.Second) })}},
		},
		"of blocked pods the youngest is kept as a probe, and no more are made": {
			want:    wants(5),
			have:    plan.Have{Pods: []plan.Pod{warming("a", 30*time.Second, trouble(plan.Blocked, "ImagePull")), warming("b", 20*time.Second, trouble(plan.Blocked, "ImagePull")), warming("c", 25*time.Second)}},
			deletes: deletes{"a": plan.DeleteBlocked}, shortfall: "ImagePull",
		},
		"while idle pods become fewer the probe still is the only one": {
			want: wants(3), have: plan.Have{Pods: []plan.Pod{idle("a", 5*time.Minute), warming("b", 20*time.Second, trouble(plan.Blocked, "ImagePull"))}},
			shortfall: "ImagePull",
		},
		"a blocked pod among others that work is replaced": {
			want:    wants(3),
			have:    plan.Have{Pods: []plan.Pod{idle("a", time.Second), idle("b", time.Second), warming("c", 20*time.Second, trouble(plan.Blocked, "ImagePull"))}},
			deletes: deletes{"c": plan.DeleteBlocked}, create: 1,
		},
		"a probe that was tried for long makes place for another one": {
			want: wants(3), have: plan.Have{Pods: []plan.Pod{warming("a", 61*time.Second, trouble(plan.Blocked, "ImagePull"))}},
			deletes: deletes{"a": plan.DeleteBlocked}, create: 1, shortfall: "ImagePull",
		},
		"after failures a probe gets more time": {
			want:      wants(3),
			have:      plan.Have{Pods: []plan.Pod{warming("a", 119*time.Second, trouble(plan.Blocked, "ImagePull"))}, History: plan.History{Failures: 1}},
			shortfall: "ImagePull",
		},
		"a refused create is not tried again before its time": {
			want: wants(3, func(w *plan.Want) { w.NotBefore = noon().Add(time.Second) }),
		},
		"a paused pool gets nothing and keeps its surplus": {
			want: wants(1, func(w *plan.Want) { w.Paused = true; w.IdleTime = 0 }),
			have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), idle("b", time.Minute), ended("c", plan.Expired, time.Second)}}, deletes: deletes{"c": plan.DeleteExpired},
		},
		"of a removed pool all goes but what is claimed": {
			want:    plan.Want{Removed: true, Burst: 1},
			have:    plan.Have{Pods: []plan.Pod{idle("a", time.Minute), warming("b", time.Second), claimed("c"), ended("d", plan.Finished, time.Second), warming("e", time.Hour, trouble(plan.Lost, "")), idle("f", 29*time.Minute+50*time.Second)}},
			deletes: deletes{"a": plan.DeleteRemoved, "b": plan.DeleteRemoved, "e": plan.DeleteRemoved, "f": plan.DeleteRemoved},
		},
	})
}

func check(t *testing.T, cases map[string]situation) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := plan.Plan(noon(), c.want, c.have)
			require.Equal(t, c.create, r.Create, "creates")
			require.Equal(t, c.again, r.Again, "again")
			got := deletes{}
			for _, d := range r.Delete {
				require.Equal(t, "uid-"+d.Name, d.UID)
				got[d.Name] = d.Reason
			}
			if c.deletes == nil {
				c.deletes = deletes{}
			}
			require.Equal(t, c.deletes, got)
			switch c.wanted {
			case 0:
				c.wanted = c.want.Count
			case -1:
				c.wanted = 0
			}
			require.Equal(t, c.wanted, r.Wanted)
			if c.shortfall == "" {
				require.Nil(t, r.Shortfall)
			} else {
				require.NotNil(t, r.Shortfall)
				require.Equal(t, c.shortfall, r.Shortfall.Reason)
				require.NotEmpty(t, r.Shortfall.Message)
			}
		})
	}
}

func TestPausesAfterFailuresGrowOneAtATimeAndEnd(t *testing.T) {
	now, history := noon(), plan.History{}
	var pauses []time.Duration
	for i := range 8 {
		failed := ended(fmt.Sprintf("p%d", i), plan.Failed, 0, trouble(plan.Over, "Crash"))
		failed.Created, failed.Ended = now.Add(-2*time.Second), now
		r := plan.Plan(now, wants(10), plan.Have{Pods: []plan.Pod{failed}, History: history})
		require.Zero(t, r.Create)
		require.Equal(t, r.History.Until, r.RequeueAt)
		pauses = append(pauses, r.RequeueAt.Sub(now))

		now, history = r.RequeueAt, r.History
		r = plan.Plan(now, wants(10), plan.Have{History: history})
		require.Equal(t, 1, r.Create, "after the pause one probe is made")
		history = r.History
		now = now.Add(2 * time.Second)
	}
	s := time.Second
	require.Equal(t, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}, pauses)

	probe := idle("probe", 0)
	probe.Created, probe.Ready = now, now.Add(s)
	now = now.Add(s)
	r := plan.Plan(now, wants(10), plan.Have{Pods: []plan.Pod{probe}, History: history})
	require.Equal(t, 9, r.Create, "the probe has become Ready: the rest is made")
	require.Equal(t, 8, r.History.Failures, "a pod that has just become Ready may fail yet")
	r = plan.Plan(now.Add(time.Minute), wants(10), plan.Have{Pods: []plan.Pod{probe}, History: r.History})
	require.Zero(t, r.History.Failures)
}

func TestPodsThatFailTogetherAreOneFailure(t *testing.T) {
	var pods []plan.Pod
	for i := range 10 {
		pods = append(pods, ended(fmt.Sprintf("p%d", i), plan.Failed, time.Second, trouble(plan.Over, "Crash")))
	}
	r := plan.Plan(noon(), wants(10), plan.Have{Pods: pods[:4]})
	require.Equal(t, 1, r.History.Failures)
	r = plan.Plan(noon().Add(time.Second), wants(10), plan.Have{Pods: pods[4:], History: r.History})
	require.Equal(t, 1, r.History.Failures)
	require.Len(t, r.Delete, 6)
}

func TestPodsThatFailAfterTheyWereReadyAreNoSuccess(t *testing.T) {
	now, history := noon(), plan.History{}
	for i := range 4 {
		probe := idle(fmt.Sprintf("p%d", i), 0)
		probe.Created, probe.Ready = now, now.Add(2*time.Second)
		r := plan.Plan(now.Add(3*time.Second), wants(1), plan.Have{Pods: []plan.Pod{probe}, History: history})
		probe.State, probe.Ended, probe.Trouble = plan.Failed, now.Add(20*time.Second), plan.Trouble{Outlook: plan.Over, Reason: "Crash"}
		r = plan.Plan(now.Add(20*time.Second), wants(1), plan.Have{Pods: []plan.Pod{probe}, History: r.History})
		require.Equal(t, i+1, r.History.Failures)
		now, history = r.History.Until, r.History
	}
}

func TestExpiriesAreSpread(t *testing.T) {
	pods := many(200, idle, 0)
	for i := range pods {
		pods[i].Ready = noon()
	}
	starts := map[time.Time]int{}
	now := noon()
	for {
		r := plan.Plan(now, wants(0), plan.Have{Pods: pods})
		if r.Counts.Expiring == len(pods) {
			break
		}
		require.True(t, r.RequeueAt.After(now))
		now = r.RequeueAt
		starts[now.Truncate(10*time.Second)]++
		require.True(t, now.Before(noon().Add(29*time.Minute+time.Second)), "all have a minute left")
	}
	require.Greater(t, len(starts), 10, "replacements of a pool that was filled at once are made over a while")
}

func TestInputOrderAndArgumentsDontMatter(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want, have := anyWant(rng), anyHave(rng)
		first := plan.Plan(noon(), want, have)
		shuffled := have
		shuffled.Pods = slices.Clone(have.Pods)
		rng.Shuffle(len(shuffled.Pods), func(i, j int) {
			shuffled.Pods[i], shuffled.Pods[j] = shuffled.Pods[j], shuffled.Pods[i]
		})
		before := slices.Clone(shuffled.Pods)
		require.Equal(t, first, plan.Plan(noon(), want, shuffled), "seed %d", seed)
		require.Equal(t, before, shuffled.Pods, "seed %d: the arguments were changed", seed)
	}
}

func TestALimitSaysHowMuchOfItIsEnding(t *testing.T) {
	have := plan.Have{Pods: []plan.Pod{ended("a", plan.Ending, 0), idle("b", time.Minute)}, Others: plan.Others{Ending: 2}}
	r := plan.Plan(noon(), wants(3, limited(4)), have)
	require.Equal(t, "the runner's limit is 4, and its jobs and pools hold that many pods, 3 of them ending", r.Shortfall.Message)
	r = plan.Plan(noon(), wants(3, limited(1)), plan.Have{Pods: []plan.Pod{idle("b", time.Minute)}})
	require.Equal(t, "the runner's limit is 1, and its jobs and pools hold that many pods", r.Shortfall.Message)
}
