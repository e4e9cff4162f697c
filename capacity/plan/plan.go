// Package plan decides for how many jobs room is held. It is pure: time and what is there are arguments, the answer is a
// number and when to ask again.
package plan

import (
	"math"
	"time"

	poolplan "idlecount.dev/idlecount/pool/plan"
)

// Want is what the configuration wants of a capacity now.
type Want struct {
	Count            int           // room for so many jobs at least
	ScaleFactor      float64       // times the jobs that run; 0 = off
	ScaleFactorLimit int           // cap of the factor's part; 0 = none
	IdleTime         time.Duration // how long what is surplus stays
	Drained          bool          // nothing is wanted, at once
	Paused           bool          // what is there stays as it is
}

// Have is what is there.
type Have struct {
	Jobs     int       // that run, or are on their way to a node
	Held     int       // as the Deployment has it: what it asks for
	Surplus  time.Time // since when more is there than is wanted; zero = it isn't
	Room     int       // the most that the runner's limit and max_pause_pods leave; NoBound = any number
	QuotaFor int       // the most that the namespace's quotas leave; NoBound = any number
	Given    Given
}

// Given is the room that drivers have asked for, whose jobs' pods a quota refuses. The zero value is that of none.
type Given struct {
	At   time.Time // when somebody asked last
	Most int       // pause pods that may be there since
}

// After is g with the room of so many more pause pods asked for at now, of those that are there.
func (g Given) After(now time.Time, asked, there int) Given {
	if g.holds(now) {
		there = min(there, g.Most)
	}
	return Given{At: now, Most: max(0, there-asked)}
}

func (g Given) holds(now time.Time) bool { return now.Before(g.At.Add(jobComes)) }

// jobComes is how long room that a driver has asked for is left to it: pause pods have to go, the quota has to count anew,
// and the driver asks again several times a second.
const jobComes = 10 * time.Second

// NoBound is a bound that bounds nothing.
const NoBound = math.MaxInt

// Bound is what keeps a capacity below what is wanted.
type Bound string

// The bounds; Free is none.
const (
	Free  Bound = ""
	Limit Bound = "Limit"
	Quota Bound = "Quota"
	Jobs  Bound = "Jobs" // drivers have asked for the room
)

// Result is how much is to be held.
type Result struct {
	Wanted  int       // as the policy says, whatever bounds it
	Hold    int       // pause pods that are to be there
	Surplus time.Time // since when more is there than is wanted; zero = it isn't
	Bound   Bound
	// LookAt is when time alone will change the answer; zero = never.
	LookAt time.Time
}

// Plan decides. What is missing comes at once; what is surplus goes an idle time after it became so, as the idle pods of
// docker-machine do; what a limit or a quota doesn't leave goes at once, since jobs may be waiting for it.
func Plan(now time.Time, want Want, have Have) Result {
	if want.Drained {
		return Result{}
	}
	r := Result{Wanted: wanted(want, have.Jobs)}
	r.Hold = r.Wanted
	switch {
	case want.Paused:
		r.Hold = have.Held
	case r.Wanted < have.Held:
		r.Surplus = have.Surplus
		if r.Surplus.IsZero() || r.Surplus.After(now) {
			r.Surplus = now
		}
		if end := r.Surplus.Add(want.IdleTime); end.After(now) {
			r.Hold, r.LookAt = have.Held, end
		}
	}
	given := NoBound
	if have.Given.holds(now) {
		given = have.Given.Most
	}
	for _, b := range []struct {
		bound Bound
		room  int
	}{{Limit, have.Room}, {Quota, have.QuotaFor}, {Jobs, given}} {
		if room := max(0, b.room); r.Hold > room {
			r.Hold = room
			if room < r.Wanted && !want.Paused {
				r.Bound = b.bound
			}
		}
	}
	if r.Hold <= r.Wanted {
		r.Surplus, r.LookAt = time.Time{}, time.Time{}
	}
	if r.Bound == Jobs {
		r.LookAt = have.Given.At.Add(jobComes)
	}
	return r
}

func wanted(w Want, jobs int) int {
	return poolplan.Want{Count: w.Count, ScaleFactor: w.ScaleFactor, ScaleFactorLimit: w.ScaleFactorLimit}.Idle(jobs)
}
