package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool/plan"
)

// TestWhateverHasBeenThePoolsComeRight lets a runner's pools begin with any pods and any history, and go through changes of
// all that is wanted, broken images and jobs. Once nothing changes any more and pods start again, each pool comes to have
// what it wants and nothing else, within the longest pause that it may make, whatever came before.
func TestWhateverHasBeenThePoolsComeRight(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 10))
		what := fmt.Sprintf("seed %d", seed)
		limit := pick(rng, 0, 0, 15+rng.IntN(15))
		w := newWorld(t)
		for _, name := range []string{"a", "b", "c"}[:1+rng.IntN(3)] {
			w.pools = append(w.pools, anyStage(rng, name, limit))
		}
		if limit > 0 {
			keepWithin(w.pools, limit)
		}
		broken := false
		w.stuck = func(plan.Pod) bool { return broken }
		for range 100 {
			broken = broken != (rng.IntN(15) == 0)
			s := w.pools[rng.IntN(len(w.pools))]
			switch rng.IntN(5) {
			case 0:
				s.claim()
			case 1:
				s.end()
			case 2:
				s.want.Template, s.want.Count = pick(rng, template, "t2"), rng.IntN(8)
				s.want.Drained, s.want.Paused, s.want.Removed = rng.IntN(8) == 0, rng.IntN(8) == 0, rng.IntN(8) == 0
				s.want.ScaleFactor = pick(rng, 0, 0.5, 1.5)
			}
			w.tick(what)
		}
		broken = false
		for _, s := range w.pools {
			s.want.Paused = false
		}
		// The longest pause is five minutes. Nothing but the plan itself brings about another look.
		for end := w.now.Add(8 * time.Minute); w.now.Before(end); {
			w.tick(what)
			w.skip()
		}
		w.requireRight(what)
	}
}

// anyStage is a pool in any state.
func anyStage(rng *rand.Rand, name string, limit int) *stage {
	s := &stage{name: name, want: wants(rng.IntN(8), limited(limit)), history: anyHave(rng).History}
	s.want.IdleTime = pick(rng, 0, 20*time.Second)
	for i := range rng.IntN(10) {
		pod := anyPod(rng, fmt.Sprintf("%s-old%d", name, i))
		pod.Deadline = time.Time{} // the jobs of this test have time
		if pod.State == plan.Warming && pod.Trouble.Outlook == plan.Lost {
			pod.Trouble = plan.Trouble{} // their nodes come back
		}
		s.pods = append(s.pods, pod)
	}
	return s
}

// keepWithin takes pods away until the limit holds: whoever exceeds it isn't the plan.
func keepWithin(pools []*stage, limit int) {
	for _, s := range pools {
		s.pods = s.pods[:min(len(s.pods), limit/len(pools))]
	}
}

// skip passes the time in which nothing happens, until just before something may.
func (w *world) skip() {
	next := w.now.Add(time.Hour)
	for _, s := range w.pools {
		if s.last.Create > 0 || len(s.last.Delete) > 0 || count(s.pods, plan.Warming, plan.Ending) > 0 {
			return
		}
		if at := s.last.RequeueAt; !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if next = next.Add(-time.Second); next.After(w.now) {
		w.now = next
	}
}

// requireRight holds that each pool has what it wants. Pods that are about to expire are there beside.
func (w *world) requireRight(what string) {
	w.t.Helper()
	jobs, demands := 0, []plan.Demand(nil)
	for _, s := range w.pools {
		claimed := count(s.pods, plan.Claimed)
		jobs += claimed
		if !s.want.Removed && !s.want.Drained {
			demands = append(demands, plan.Demand{Name: s.name, Want: s.want.Idle(claimed)})
		}
	}
	shares := map[string]int{}
	for _, d := range demands {
		shares[d.Name] = d.Want
	}
	if limit := w.pools[0].want.Limit; limit > 0 {
		shares = plan.Share(limit-jobs, demands)
	}
	for _, s := range w.pools {
		present, expiring, others := 0, s.last.Counts.Expiring, 0
		for _, pod := range s.pods {
			switch {
			case pod.State == plan.Idle && pod.Template == s.want.Template:
				present++
			case pod.State == plan.Idle, pod.State == plan.Failed, pod.State == plan.Expired:
				others++
			}
		}
		state := fmt.Sprintf("%s: pool %s has %d idle of its template, %d expiring, %d others, share %d, %+v", what, s.name, present, expiring, others, shares[s.name], s.last)
		require.GreaterOrEqual(w.t, present, shares[s.name], state)
		if s.want.Removed || s.want.Drained {
			require.Zero(w.t, present+others, state)
		} else if s.want.Limit == 0 {
			require.LessOrEqual(w.t, present+others-expiring, shares[s.name], state)
		}
	}
}
