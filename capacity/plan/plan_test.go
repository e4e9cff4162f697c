package plan_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"idlecount.dev/idlecount/capacity/plan"
)

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func TestPlan(t *testing.T) {
	free := func(h plan.Have) plan.Have {
		if h.Room == 0 {
			h.Room = plan.NoBound
		}
		if h.QuotaFor == 0 {
			h.QuotaFor = plan.NoBound
		}
		return h
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for sentence, c := range map[string]struct {
		want plan.Want
		have plan.Have
		is   plan.Result
	}{
		"what is missing comes at once": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 2}, plan.Result{Wanted: 5, Hold: 5},
		},
		"the factor counts the jobs that run": {
			plan.Want{Count: 1, ScaleFactor: 0.5}, plan.Have{Held: 1, Jobs: 5}, plan.Result{Wanted: 3, Hold: 3},
		},
		"up to its limit": {
			plan.Want{Count: 1, ScaleFactor: 2, ScaleFactorLimit: 4}, plan.Have{Jobs: 5}, plan.Result{Wanted: 4, Hold: 4},
		},
		"surplus stays for the idle time": {
			plan.Want{Count: 1, IdleTime: 10 * time.Minute}, plan.Have{Held: 5},
			plan.Result{Wanted: 1, Hold: 5, Surplus: now, LookAt: now.Add(10 * time.Minute)},
		},
		"which counts from when it began": {
			plan.Want{Count: 0, IdleTime: 10 * time.Minute}, plan.Have{Held: 5, Surplus: ago(9 * time.Minute)},
			plan.Result{Hold: 5, Surplus: ago(9 * time.Minute), LookAt: now.Add(time.Minute)},
		},
		"and goes then, down to zero": {
			plan.Want{Count: 0, IdleTime: 10 * time.Minute}, plan.Have{Held: 5, Surplus: ago(10 * time.Minute)}, plan.Result{},
		},
		"without an idle time it goes at once": {
			plan.Want{Count: 2}, plan.Have{Held: 5}, plan.Result{Wanted: 2, Hold: 2},
		},
		"what is wanted again is no surplus": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 5, Surplus: ago(time.Minute)}, plan.Result{Wanted: 5, Hold: 5},
		},
		"a beginning in the future is a clock's mistake": {
			plan.Want{IdleTime: time.Minute}, plan.Have{Held: 1, Surplus: now.Add(time.Hour)},
			plan.Result{Hold: 1, Surplus: now, LookAt: now.Add(time.Minute)},
		},
		"the runner's limit holds at once": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 5, Room: 2}, plan.Result{Wanted: 5, Hold: 2, Bound: plan.Limit},
		},
		"so does a quota": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 5, Room: 4, QuotaFor: 3}, plan.Result{Wanted: 5, Hold: 3, Bound: plan.Quota},
		},
		"a bound above what is wanted bounds surplus only": {
			plan.Want{Count: 1, IdleTime: time.Hour}, plan.Have{Held: 5, QuotaFor: 3},
			plan.Result{Wanted: 1, Hold: 3, Surplus: now, LookAt: now.Add(time.Hour)},
		},
		"what a driver asks for goes at once": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 5, Given: plan.Given{Left: 3, At: now}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Quota, LookAt: now.Add(10 * time.Second)},
		},
		"and once, though its pods are still going": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Left: 3, At: now}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Quota, LookAt: now.Add(10 * time.Second)},
		},
		"until the driver has had time for its job": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Left: 3, At: ago(9 * time.Second)}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Quota, LookAt: now.Add(time.Second)},
		},
		"then it comes back": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Left: 3, At: ago(10 * time.Second)}},
			plan.Result{Wanted: 5, Hold: 5},
		},
		"no room is none": {
			plan.Want{Count: 5}, plan.Have{Held: 5, Room: -3}, plan.Result{Wanted: 5, Bound: plan.Limit},
		},
		"paused, it stays as it is":         {plan.Want{Count: 5, Paused: true}, plan.Have{Held: 2}, plan.Result{Wanted: 5, Hold: 2}},
		"drained, it goes":                  {plan.Want{Count: 5, Drained: true, IdleTime: time.Hour}, plan.Have{Held: 5}, plan.Result{}},
		"paused and below, nothing is made": {plan.Want{Paused: true}, plan.Have{Held: 2}, plan.Result{Hold: 2}},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.is, plan.Plan(now, c.want, free(c.have)))
		})
	}
}

// TestSafety: whatever the numbers are, what is held never exceeds a bound, never more comes than is wanted, and a second
// look at the same time changes nothing.
func TestSafety(t *testing.T) {
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		want := plan.Want{
			Count: rnd.IntN(8), ScaleFactor: float64(rnd.IntN(4)) / 2, ScaleFactorLimit: rnd.IntN(5),
			IdleTime: time.Duration(rnd.IntN(4)) * time.Minute, Drained: rnd.IntN(10) == 0, Paused: rnd.IntN(10) == 0,
		}
		have := plan.Have{Jobs: rnd.IntN(6), Held: rnd.IntN(10), Room: rnd.IntN(12) - 1, QuotaFor: rnd.IntN(12)}
		if rnd.IntN(2) == 0 {
			have.Surplus = now.Add(-time.Duration(rnd.IntN(5)) * time.Minute)
		}
		if rnd.IntN(3) == 0 {
			have.Given = plan.Given{Left: rnd.IntN(10), At: now.Add(-time.Duration(rnd.IntN(15)) * time.Second)}
		}
		r := plan.Plan(now, want, have)
		if now.Sub(have.Given.At) < 10*time.Second {
			require.LessOrEqual(t, r.Hold, min(have.Held, have.Given.Left), "seed %d", seed)
		}
		require.LessOrEqual(t, r.Hold, max(0, have.Room), "seed %d", seed)
		require.LessOrEqual(t, r.Hold, have.QuotaFor, "seed %d", seed)
		require.LessOrEqual(t, r.Hold, max(r.Wanted, have.Held), "seed %d", seed)
		require.GreaterOrEqual(t, r.Hold, 0, "seed %d", seed)
		if r.Hold > r.Wanted && !want.Paused {
			require.False(t, r.LookAt.IsZero(), "seed %d: surplus for ever", seed)
		}
		again := have
		again.Held, again.Surplus = r.Hold, r.Surplus
		require.Equal(t, r, plan.Plan(now, want, again), "seed %d", seed)
	}
}

func pod(cpu string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)},
	}}}}}
}

func TestQuotaRoom(t *testing.T) {
	low := pod("500m")
	low.Spec.PriorityClassName = "low"
	quota := func(scoped bool, pairs ...string) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}}
		for i := 0; i < len(pairs); i += 3 {
			q.Status.Hard[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
			q.Status.Used[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+2])
		}
		if scoped {
			q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"low"}},
			}}
		}
		return q
	}
	for sentence, c := range map[string]struct {
		quotas     []*corev1.ResourceQuota
		held, jobs int
		want       int
	}{
		"no quota":                          {nil, 3, 1, plan.NoBound},
		"one that counts nothing of ours":   {[]*corev1.ResourceQuota{quota(false, "configmaps", "1", "1")}, 0, 1, plan.NoBound},
		"half of it is used by ourselves":   {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "2")}, 4, 0, 8},
		"headroom for two jobs of one CPU":  {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "2")}, 4, 2, 4},
		"jobs have used what was left":      {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "4")}, 2, 1, 0},
		"the tightest of several":           {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "0", "pods", "3", "0")}, 0, 1, 2},
		"a quota of pause pods has no jobs": {[]*corev1.ResourceQuota{quota(true, "requests.cpu", "2", "0")}, 0, 5, 4},
		"overdrawn":                         {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "1", "5")}, 0, 1, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.want, plan.QuotaRoom(c.quotas, low, pod("1"), c.held, c.jobs))
		})
	}
}
