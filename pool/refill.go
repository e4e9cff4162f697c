package pool

import (
	"sync"
	"time"
)

// refills measures how long pools take to make good what claims have taken. A claim is open until its pool lacks no more
// ready idle pods than later claims have taken; so the measure goes on where claims never stop and the pool is never full.
// Claims come from watches and are settled by the worker.
type refills struct {
	mu    sync.Mutex
	pools map[string]*openClaims // by pool
}

// openClaims are a pool's claims that haven't been made good, the oldest first, and how many idle pods the pool wanted when
// it was last looked at.
type openClaims struct {
	at     []time.Time
	wanted int
}

func newRefills() *refills { return &refills{pools: map[string]*openClaims{}} }

// claimed notes a claim of a pool's pod.
func (r *refills) claimed(pool string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools[pool] == nil {
		r.pools[pool] = &openClaims{}
	}
	r.pools[pool].at = append(r.pools[pool].at, at)
}

// settle returns how long the claims have taken that are made good now: of the pool's wanted idle pods, missing aren't there,
// as was seen at a time or a moment after it.
func (r *refills) settle(pool string, at time.Time, wanted, missing int) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.pools[pool]
	if o == nil {
		return nil
	}
	fewer := wanted < o.wanted
	o.wanted = wanted
	known := 0
	for known < len(o.at) && o.at[known].Before(at) {
		known++ // a later claim may not have been seen
	}
	done := max(0, known-missing)
	var took []time.Duration
	if !fewer { // else nothing was made for some of them, and nobody knows for which
		for _, claimed := range o.at[:done] {
			took = append(took, at.Sub(claimed))
		}
	}
	o.at = o.at[done:]
	return took
}

// forget drops a pool's claims.
func (r *refills) forget(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pools, pool)
}
