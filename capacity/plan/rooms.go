package plan

import "time"

// Rooms is what quotas have left room for of late. A quota and a watch of pods tell of a pod at different moments: the quota
// counts a new one before it is shown, and one that has gone for a while after. So the number swings while pods come and
// go, and only what holds for a while is acted on. The zero value knows nothing.
type Rooms struct {
	seen   []room
	held   int       // as it was asked last
	grown  time.Time // when there came to be more
	vain   int       // how often in a row that was too much at once
	calm   time.Time // until then no more come
	taking bool      // whether there are more than may be
}

type room struct {
	since time.Time
	most  int
}

const (
	// believed is how long a number has to hold.
	believed = time.Second
	// proven is how long more than before have to be there without being too many. Where they are too many sooner, somebody else
	// does the same with the same quota, or pods are larger than they look; the pause before the next try doubles then.
	proven    = 10 * time.Second
	firstCalm = time.Second
	maxCalm   = 5 * time.Minute
)

// See notes how many there is room for from now on. Times must not go back.
func (r *Rooms) See(now time.Time, most int) {
	if n := len(r.seen); n == 0 || r.seen[n-1].most != most {
		r.seen = append(r.seen, room{now, most})
	}
}

// For is the most that there may be, where so many are there: of these, as many stay as there was room for at any time of
// late; more come where there was room for them all the while. again is when time alone will change the answer; zero = never.
func (r *Rooms) For(now time.Time, held int) (most int, again time.Time) {
	for len(r.seen) > 1 && !r.seen[1].since.After(now.Add(-believed)) {
		r.seen = r.seen[1:]
	}
	if len(r.seen) == 0 {
		return NoBound, time.Time{}
	}
	low, high := r.seen[0].most, r.seen[0].most
	for _, s := range r.seen[1:] {
		low, high = min(low, s.most), max(high, s.most)
	}
	if len(r.seen) > 1 {
		again = r.seen[1].since.Add(believed)
	}
	most = min(max(held, low), high)
	r.learn(now, held, most)
	if most > held && now.Before(r.calm) {
		return held, r.calm
	}
	return most, again
}

// learn notes whether more came to be there than there may be.
func (r *Rooms) learn(now time.Time, held, most int) {
	if held > r.held {
		r.grown = now
	}
	r.held = held
	if taking := most < held; taking != r.taking {
		r.taking = taking
		if !taking {
			return
		}
		if r.vain++; now.Sub(r.grown) > proven {
			r.vain = 0
		}
		r.calm = now.Add(min(firstCalm<<min(r.vain, 16), maxCalm))
	}
}
