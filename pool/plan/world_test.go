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

// world is a cluster for some pools of one runner: pods take a while to start and to end, and nothing else happens.
type world struct {
	t     *testing.T
	now   time.Time
	made  int
	pools []*stage
	stuck func(plan.Pod) bool // pods that never start
}

// stage is one pool of a world.
type stage struct {
	name    string
	want    plan.Want
	pods    []plan.Pod
	history plan.History
	last    plan.Result
	follows *stage // the pool that this one replaces
}

const (
	startTime = 3 * time.Second
	endTime   = 2 * time.Second
)

func newWorld(t *testing.T, pools ...*stage) *world {
	return &world{t: t, now: noon(), pools: pools, stuck: func(plan.Pod) bool { return false }}
}

// tick lets a second pass, and every pool have its pass.
func (w *world) tick(what string) {
	w.now = w.now.Add(time.Second)
	for _, s := range w.pools {
		for i := range s.pods {
			pod := &s.pods[i]
			switch {
			case pod.State == plan.Warming && w.stuck(*pod):
				pod.Trouble = plan.Trouble{Outlook: plan.Blocked, Reason: "ImagePull", Message: "not found"}
			case pod.State == plan.Warming && !w.now.Before(pod.Created.Add(startTime)):
				pod.State, pod.Ready = plan.Idle, w.now
			}
		}
		s.pods = slices.DeleteFunc(s.pods, func(p plan.Pod) bool { return p.State == plan.Ending && !w.now.Before(p.Ended.Add(endTime)) })
	}
	for _, s := range w.pools {
		w.pass(s, what)
	}
}

func (w *world) pass(s *stage, what string) {
	r := plan.Plan(w.now, w.wantOf(s), w.have(s))
	s.last, s.history = r, r.History
	for _, d := range r.Delete {
		i := slices.IndexFunc(s.pods, func(p plan.Pod) bool { return p.UID == d.UID })
		require.NotEqual(w.t, plan.Claimed, s.pods[i].State, what)
		s.pods[i].State, s.pods[i].Ended, s.pods[i].Trouble = plan.Ending, w.now, plan.Trouble{}
	}
	for range r.Create {
		w.made++
		name := fmt.Sprintf("%s-%04d", s.name, w.made)
		s.pods = append(s.pods, plan.Pod{
			Name: name, UID: "uid-" + name, State: plan.Warming, Created: w.now, Moved: w.now, IdleTime: 30 * time.Minute, Template: s.want.Template,
		})
	}
	if r.Create > 0 && s.want.Limit > 0 {
		held := 0
		for _, s := range w.pools {
			held += count(s.pods, plan.Idle, plan.Warming, plan.Claimed, plan.Ending)
		}
		require.LessOrEqual(w.t, held, s.want.Limit, what)
	}
}

func (w *world) wantOf(s *stage) plan.Want {
	want := s.want
	for _, next := range w.pools {
		if next.follows == s {
			r := plan.Plan(w.now, next.want, w.have(next))
			want.Removed, want.Replaced, want.Keep = true, true, plan.Keep(r.Target, next.idle(), r.Full)
		}
	}
	return want
}

func (w *world) have(s *stage) plan.Have {
	have := plan.Have{Name: s.name, Pods: slices.Clone(s.pods), History: s.history}
	for _, other := range w.pools {
		if other == s {
			continue
		}
		stock := count(other.pods, plan.Idle, plan.Warming)
		if other == s.follows {
			have.Former = plan.Former{Stock: stock, Claimed: count(other.pods, plan.Claimed)}
		} else if other.follows != s && !other.want.Removed {
			d := plan.Demand{Name: other.name, Want: other.want.Idle(count(other.pods, plan.Claimed)), Stock: stock}
			if other.want.Drained {
				d.Want = 0
			}
			have.Others.Pools = append(have.Others.Pools, d)
		}
		have.Others.Live += stock + count(other.pods, plan.Claimed)
		have.Others.Ending += count(other.pods, plan.Ending)
	}
	return have
}

func (s *stage) idle() int { return count(s.pods, plan.Idle) }

// claim takes an idle pod, end ends a job; both say whether there was one.
func (s *stage) claim() bool { return s.turn(plan.Idle, plan.Claimed) }

func (s *stage) end() bool { return s.turn(plan.Claimed, plan.Ending) }

func (s *stage) turn(from, to plan.State) bool {
	i := slices.IndexFunc(s.pods, func(p plan.Pod) bool { return p.State == from })
	if i >= 0 {
		s.pods[i].State = to
	}
	return i >= 0
}

func TestARolloutNeverDipsAndNeverSurgesBeyondItsBound(t *testing.T) {
	for n := range 21 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := &stage{name: "p", want: wants(n)}
			w := newWorld(t, s)
			for s.idle() < n {
				w.tick("fill")
			}
			s.want.Template = "t2"
			for i := 0; s.idle()+count(s.pods, plan.Warming) != n || slices.ContainsFunc(s.pods, func(p plan.Pod) bool { return p.Template != "t2" }); i++ {
				w.tick("rollout")
				require.GreaterOrEqual(t, s.idle(), n, "ready pods dip")
				require.LessOrEqual(t, s.idle()+count(s.pods, plan.Warming), n+plan.Surge(n))
				require.Less(t, i, 100, "the rollout doesn't end")
			}
			require.Equal(t, 2*n, w.made, "each pod is replaced once")
		})
	}
}

func TestWhereNewPodsDontStartTheOldOnesStay(t *testing.T) {
	s := &stage{name: "p", want: wants(8)}
	w := newWorld(t, s)
	w.stuck = func(p plan.Pod) bool { return p.Template == "t2" }
	for s.idle() < 8 {
		w.tick("fill")
	}
	s.want.Template = "t2"
	for range 600 {
		w.tick("a broken rollout")
		require.Equal(t, 8, s.idle())
		require.LessOrEqual(t, count(s.pods, plan.Warming), 2)
	}
	require.Equal(t, "ImagePull", s.last.Shortfall.Reason)
	require.Less(t, w.made, 20, "no pods are made in a loop")
}

// TestARolloutUnderALimitEnds: where the limit has no place for the whole surge, ready pods dip, by no more than that; where it
// has, they don't.
func TestARolloutUnderALimitEnds(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for _, spare := range []int{0, 1, 5} {
			s := &stage{name: "p", want: wants(n, limited(n+spare))}
			w := newWorld(t, s)
			for s.idle() < n {
				w.tick("fill")
			}
			least := n
			if spare < plan.Surge(n) {
				least -= plan.Surge(n)
			}
			s.want.Template = "t2"
			for i := 0; s.idle() < n || slices.ContainsFunc(s.pods, func(p plan.Pod) bool { return p.Template != "t2" }); i++ {
				w.tick("rollout")
				require.GreaterOrEqual(t, s.idle(), least, "%d pods, room for %d more", n, spare)
				require.Less(t, i, 200, "the rollout of %d doesn't end, with room for %d more", n, spare)
			}
		}
	}
}

func TestAnotherShapeReplacesAPoolWithoutADip(t *testing.T) {
	for _, limit := range []int{0, 40, 12, 10, 6, 2} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			const n = 10
			former := &stage{name: "a", want: wants(n, limited(limit))}
			w := newWorld(t, former)
			for range 10 {
				w.tick("fill")
			}
			former.claim()
			next := &stage{name: "b", want: wants(n, limited(limit)), follows: former}
			w.pools = append(w.pools, next)
			wanted := n
			if limit > 0 {
				wanted = min(n, limit-1) // the job has one place
			}
			// The claimed pod isn't there; where there is no place for a surge, as many fewer are.
			least := former.idle()
			if limit > 0 && limit < n+1+plan.Surge(n) {
				least = wanted - plan.Surge(wanted)
			}
			for i := 0; former.idle() > 0 || next.idle() < wanted; i++ {
				w.tick("rollout")
				require.GreaterOrEqual(t, former.idle()+next.idle(), least, "after %d s", i)
				all := former.idle() + next.idle() + count(next.pods, plan.Warming)
				require.LessOrEqual(t, all, n+plan.Surge(n))
				require.Less(t, i, 200, "the rollout doesn't end")
			}
			require.Equal(t, wanted, next.idle())
			require.Equal(t, 1, count(former.pods, plan.Claimed))
		})
	}
}

// TestALimitIsSharedOut lets jobs come and go in three pools whose wishes together exceed the limit. Once nothing happens
// any more, each has its share, whatever came before.
func TestALimitIsSharedOut(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 8))
		limit := 4 + rng.IntN(20)
		var pools []*stage
		for _, name := range []string{"a", "b", "c"} {
			pools = append(pools, &stage{name: name, want: wants(rng.IntN(12), limited(limit))})
		}
		w := newWorld(t, pools...)
		what := fmt.Sprintf("seed %d", seed)
		for range 120 {
			w.tick(what)
			switch s := pools[rng.IntN(3)]; rng.IntN(4) {
			case 0:
				s.claim()
			case 1:
				s.end()
			}
		}
		for range 20 {
			w.tick(what)
		}
		jobs := 0
		var demands []plan.Demand
		for _, s := range pools {
			jobs += count(s.pods, plan.Claimed)
			demands = append(demands, plan.Demand{Name: s.name, Want: s.want.Count})
		}
		shares := plan.Share(limit-jobs, demands)
		for _, s := range pools {
			require.GreaterOrEqual(t, s.idle(), shares[s.name], "%s: pool %s of %v, %d jobs, limit %d", what, s.name, shares, jobs, limit)
			require.Zero(t, s.last.Create, what)
			require.Empty(t, s.last.Delete, what)
		}
	}
}

func TestShare(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		room := rng.IntN(40) - 3
		var demands []plan.Demand
		wanted := 0
		for i := range rng.IntN(7) {
			d := plan.Demand{Name: fmt.Sprintf("p%d", i), Want: rng.IntN(15)}
			wanted += d.Want
			demands = append(demands, d)
		}
		shares := plan.Share(room, demands)
		given := 0
		for _, d := range demands {
			share := shares[d.Name]
			given += share
			require.LessOrEqual(t, share, d.Want, "seed %d", seed)
			for _, other := range demands {
				if share < d.Want {
					require.LessOrEqual(t, shares[other.Name], share+1, "seed %d: one has more while another one lacks some", seed)
				}
			}
		}
		require.Equal(t, min(max(0, room), wanted), given, "seed %d", seed)
		rng.Shuffle(len(demands), func(i, j int) { demands[i], demands[j] = demands[j], demands[i] })
		require.Equal(t, shares, plan.Share(room, demands), "seed %d", seed)
	}
}

// TestTheScaleFactorFollowsTheJobs: idle pods become more with jobs and fewer with their ends, and nothing of a peak stays.
func TestTheScaleFactorFollowsTheJobs(t *testing.T) {
	s := &stage{name: "p", want: wants(2, func(w *plan.Want) { w.ScaleFactor, w.ScaleFactorLimit, w.IdleTime = 0.5, 8, time.Minute })}
	w := newWorld(t, s)
	jobs := 0
	run := func(target int) {
		for i := 0; jobs != target; i++ {
			w.tick("jobs")
			switch {
			case jobs < target && s.claim():
				jobs++
			case jobs > target && s.end():
				jobs--
			}
			require.Less(t, i, 1000)
		}
		for range 90 { // past the idle time
			w.tick("calm")
		}
	}
	for _, c := range []struct{ jobs, expected int }{{0, 2}, {4, 2}, {5, 3}, {10, 5}, {20, 8}, {7, 4}, {0, 2}, {16, 8}, {0, 2}} {
		run(c.jobs)
		require.Equal(t, c.expected, s.last.Wanted, "%d jobs", c.jobs)
		require.Equal(t, c.expected, s.idle(), "%d jobs", c.jobs)
	}
}
