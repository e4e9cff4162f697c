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
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 5, Given: plan.Given{Most: 3, At: now}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Jobs, LookAt: now.Add(10 * time.Second)},
		},
		"and once, though its pods are still going": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Most: 3, At: now}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Jobs, LookAt: now.Add(10 * time.Second)},
		},
		"until the driver has had time for its job": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Most: 3, At: ago(9 * time.Second)}},
			plan.Result{Wanted: 5, Hold: 3, Bound: plan.Jobs, LookAt: now.Add(time.Second)},
		},
		"then it comes back": {
			plan.Want{Count: 5, IdleTime: time.Hour}, plan.Have{Held: 3, Given: plan.Given{Most: 3, At: ago(10 * time.Second)}},
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
			have.Given = plan.Given{Most: rnd.IntN(10), At: now.Add(-time.Duration(rnd.IntN(15)) * time.Second)}
		}
		r := plan.Plan(now, want, have)
		if now.Sub(have.Given.At) < 10*time.Second {
			require.LessOrEqual(t, r.Hold, have.Given.Most, "seed %d", seed)
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
	const all = -1
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
		"no quota":                          {nil, 3, 1, all},
		"one that counts nothing of ours":   {[]*corev1.ResourceQuota{quota(false, "configmaps", "1", "1")}, 0, 1, all},
		"half of it is used by ourselves":   {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "2")}, 4, 0, 8},
		"headroom for two jobs of one CPU":  {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "2")}, 4, 2, 4},
		"jobs have used what was left":      {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "4")}, 2, 1, 0},
		"the tightest of several":           {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "4", "0", "pods", "3", "0")}, 0, 1, 2},
		"a quota of pause pods has no jobs": {[]*corev1.ResourceQuota{quota(true, "requests.cpu", "2", "0")}, 0, 5, 4},
		"overdrawn":                         {[]*corev1.ResourceQuota{quota(false, "requests.cpu", "1", "5")}, 0, 1, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			shares := plan.QuotaShares(c.quotas, []plan.Claim{{Name: "a", Want: 100, There: c.held, Pause: low, Job: pod("1"), Headroom: c.jobs}})
			share, bounded := shares["a"]
			if !bounded {
				share = all
			}
			require.Equal(t, c.want, share)
		})
	}
}

// TestCapacitiesShareAQuota: what one gets the other doesn't, and one headroom is left for each runner.
func TestCapacitiesShareAQuota(t *testing.T) {
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"pods": resource.MustParse("12"), "requests.cpu": resource.MustParse("20")},
		Used: corev1.ResourceList{"pods": resource.MustParse("5"), "requests.cpu": resource.MustParse("9")},
	}}
	claim := func(name, runner, cpu string, want, surplus, there int) plan.Claim {
		return plan.Claim{Name: name, Runner: runner, Want: want, Surplus: surplus, There: there, Pause: pod(cpu), Job: pod(cpu), Headroom: 1}
	}
	for sentence, c := range map[string]struct {
		claims []plan.Claim
		want   map[string]int
	}{
		"all fits":                              {[]plan.Claim{claim("a", "r", "1", 3, 0, 0), claim("b", "s", "1", 1, 1, 0)}, map[string]int{}},
		"one each in turn":                      {[]plan.Claim{claim("a", "r", "1", 10, 0, 2), claim("b", "s", "1", 10, 0, 0)}, map[string]int{"a": 4, "b": 3}},
		"capacities of a runner have one":       {[]plan.Claim{claim("a", "r", "1", 10, 0, 2), claim("b", "r", "1", 10, 0, 0)}, map[string]int{"a": 4, "b": 4}},
		"who wants little gets it":              {[]plan.Claim{claim("a", "r", "1", 10, 0, 0), claim("b", "s", "1", 1, 0, 0)}, map[string]int{"a": 4, "b": 1}},
		"surplus comes last":                    {[]plan.Claim{claim("a", "r", "1", 1, 9, 0), claim("b", "s", "1", 3, 0, 0)}, map[string]int{"a": 2, "b": 3}},
		"a large one doesn't hold back a small": {[]plan.Claim{claim("a", "r", "4", 5, 0, 0), claim("b", "s", "100m", 5, 0, 0)}, map[string]int{"a": 1, "b": 4}},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.want, plan.QuotaShares([]*corev1.ResourceQuota{q}, c.claims))
		})
	}
}

// TestAMarkCountsOnce: whichever pods go, and in however many steps.
func TestAMarkCountsOnce(t *testing.T) {
	g := plan.Given{}.After(now, 1, 8)
	require.Equal(t, 7, g.Most)
	g = g.After(now.Add(time.Second), 2, 8) // two more, while the eighth is still there
	require.Equal(t, 5, g.Most)
	g = g.After(now.Add(time.Minute), 1, 8)
	require.Equal(t, 7, g.Most, "what was long ago has come back")
}
