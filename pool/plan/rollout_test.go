package plan_test

import (
	"testing"
	"time"

	"idlecount.dev/idlecount/pool/plan"
)

// old are idle pods of another template.
func old(n int) []plan.Pod {
	pods := many(n, idle, time.Minute)
	for i := range pods {
		pods[i].Template = "t0"
	}
	return pods
}

func deadline(since time.Duration) func(*plan.Pod) {
	return func(p *plan.Pod) { p.Deadline = ago(since) }
}

func TestPlanOfRolloutsDrainsAndLimits(t *testing.T) {
	check(t, map[string]situation{
		"a pod of an old template gets a replacement, and stays until that is ready": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute, ofTemplate("t0"))}}, create: 1,
		},
		"while the replacement is warming, nothing more happens": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute, ofTemplate("t0")), warming("b", time.Second)}},
		},
		"a pod of an old template goes when enough others are ready, whatever its idle time": {
			want: wants(1), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute, ofTemplate("t0")), idle("b", 20*time.Minute)}},
			deletes: deletes{"a": plan.DeleteReplaced},
		},
		"no more than a quarter is replaced at a time": {
			want: wants(8), have: plan.Have{Pods: old(8)}, create: 2,
		},
		"as many old ones go as new ones are ready, and as many new ones are made": {
			want: wants(8), have: plan.Have{Pods: append(old(8), idle("x", time.Second), warming("y", time.Second))},
			deletes: deletes{"p000": plan.DeleteReplaced}, create: 1,
		},
		"a warming pod of an old template is replaced at once: nothing is lost with it": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), warming("b", time.Second, ofTemplate("t0"), trouble(plan.Blocked, "ImagePull"))}},
			deletes: deletes{"b": plan.DeleteReplaced}, create: 1,
		},
		"old pods stay where the new ones can't start, and the pool says why": {
			want: wants(4), have: plan.Have{Pods: append(old(4), warming("x", time.Second, trouble(plan.Blocked, "ImagePull")))}, shortfall: "ImagePull",
		},
		"a claimed pod of an old template stays": {
			want: wants(0), have: plan.Have{Pods: []plan.Pod{claimed("a", ofTemplate("t0"))}},
		},
		"a paused pool is not rolled out": {
			want: wants(1, func(w *plan.Want) { w.Paused = true }),
			have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute, ofTemplate("t0")), idle("b", time.Minute)}},
		},
		"where the limit leaves no place for replacements, a quarter of the old ones goes first": {
			want: wants(8, limited(8)), have: plan.Have{Pods: old(8)},
			deletes: deletes{"p000": plan.DeleteReplaced, "p001": plan.DeleteReplaced}, shortfall: plan.ReasonLimit,
		},
		"… and no more while they are ending": {
			want: wants(8, limited(8)), have: plan.Have{Pods: append(old(6), ended("x", plan.Ending, 0), ended("y", plan.Ending, 0))}, shortfall: plan.ReasonLimit,
		},
		"… and no more while their replacements are warming": {
			want: wants(8, limited(8)), have: plan.Have{Pods: append(old(6), warming("x", 0), warming("y", 0))}, shortfall: plan.ReasonLimit,
		},
		"where a quota leaves no place for replacements, a quarter of the old ones goes first": {
			want: wants(8, func(w *plan.Want) { w.Yield = true; w.NotBefore = noon().Add(time.Second) }), have: plan.Have{Pods: old(8)},
			deletes: deletes{"p000": plan.DeleteReplaced, "p001": plan.DeleteReplaced},
		},
		"pods of a former shape count against the surge": {
			want: wants(8), have: plan.Have{Former: plan.Former{Stock: 8}}, create: 2,
		},
		"jobs in pods of a former shape count for the scale factor": {
			want: wants(1, func(w *plan.Want) { w.ScaleFactor = 1 }), have: plan.Have{Former: plan.Former{Claimed: 3}}, create: 3, wanted: 3,
		},
		"without a former pod left the surge is over": {
			want: wants(2), have: plan.Have{Pods: []plan.Pod{idle("a", time.Minute), warming("b", time.Second), warming("c", 2*time.Second)}},
			deletes: deletes{"b": plan.DeleteSurplus},
		},
		"of a pool that is replaced the youngest stay, as many as are to be kept": {
			want:    plan.Want{Removed: true, Replaced: true, Keep: 1},
			have:    plan.Have{Pods: []plan.Pod{idle("a", 2*time.Minute), idle("b", time.Minute), warming("c", time.Second), claimed("d")}},
			deletes: deletes{"a": plan.DeleteReplaced, "c": plan.DeleteReplaced},
		},
		"of a drained pool all goes but what is claimed, and nothing is made": {
			want:    wants(3, func(w *plan.Want) { w.Drained = true }),
			have:    plan.Have{Pods: []plan.Pod{idle("a", time.Minute), warming("b", time.Second), claimed("c"), idle("d", 29*time.Minute+50*time.Second)}},
			deletes: deletes{"a": plan.DeleteDrained, "b": plan.DeleteDrained, "d": plan.DeleteDrained}, wanted: -1,
		},
		"a claimed pod past its deadline is left to its kubelet for a while": {
			want: wants(0), have: plan.Have{Pods: []plan.Pod{claimed("a", deadline(4*time.Minute))}},
		},
		"a claimed pod long past its deadline is ended, and counts no more": {
			want: wants(0, func(w *plan.Want) { w.ScaleFactor = 1 }), have: plan.Have{Pods: []plan.Pod{claimed("a", deadline(5*time.Minute))}},
			deletes: deletes{"a": plan.DeleteDeadline},
		},
		"a limit is shared out among a runner's pools": {
			want: wants(5, limited(7)), have: plan.Have{Name: "a", Others: plan.Others{Pools: []plan.Demand{{Name: "b", Want: 5}}}},
			create: 4, shortfall: plan.ReasonLimit,
		},
		"… and what doesn't come out even is the first one's": {
			want: wants(5, limited(7)), have: plan.Have{Name: "b", Others: plan.Others{Pools: []plan.Demand{{Name: "a", Want: 5}}}},
			create: 3, shortfall: plan.ReasonLimit,
		},
		"a pool that wants little gets all of it": {
			want: wants(2, limited(7)), have: plan.Have{Name: "b", Others: plan.Others{Live: 5, Pools: []plan.Demand{{Name: "a", Want: 50, Stock: 5}}}},
			create: 2,
		},
		"a pool that came first gives back what another one lacks of its share": {
			want: wants(5, limited(7)), have: plan.Have{
				Name: "b", Pods: many(5, idle, time.Minute), Others: plan.Others{Live: 2, Pools: []plan.Demand{{Name: "a", Want: 5, Stock: 2}}},
			},
			deletes: deletes{"p000": plan.DeleteLimit, "p001": plan.DeleteLimit}, shortfall: plan.ReasonLimit,
		},
		"… not while it is paused": {
			want: wants(5, limited(7), func(w *plan.Want) { w.Paused = true }), have: plan.Have{
				Name: "b", Pods: many(5, idle, time.Minute), Others: plan.Others{Live: 2, Pools: []plan.Demand{{Name: "a", Want: 5, Stock: 2}}},
			},
		},
		"surplus that waits for its idle time makes place for what is wanted elsewhere": {
			want: wants(1, limited(5)), have: plan.Have{
				Name: "a", Pods: many(4, idle, time.Minute), Others: plan.Others{Live: 1, Pools: []plan.Demand{{Name: "b", Want: 3, Stock: 1}}},
			},
			deletes: deletes{"p000": plan.DeleteLimit, "p001": plan.DeleteLimit},
		},
		"jobs of any of the runner's pools come before all shares": {
			want: wants(5, limited(7)), have: plan.Have{
				Name: "b", Pods: many(3, idle, time.Minute), Others: plan.Others{Live: 5, Pools: []plan.Demand{{Name: "a", Want: 5, Stock: 1}}},
			},
			deletes: deletes{"p000": plan.DeleteLimit, "p001": plan.DeleteLimit}, shortfall: plan.ReasonLimit,
		},
	})
}
