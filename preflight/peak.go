package preflight

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// lookAhead covers a week, so that each policy of a common schedule comes into force in it.
	lookAhead = 8 * 24 * time.Hour
	// edgesOfOne bounds what is looked at of one schedule: a policy may change every minute.
	edgesOfOne = 500
)

// moment is how many idle pods the policies want at a time.
type moment struct {
	at     time.Time
	first  bool  // it is now
	counts []int // of each target
}

// when says at what time a moment is, unless it is now.
func (m moment) when() string {
	if m.first {
		return ""
	}
	return " from " + m.at.Format("Mon 15:04 MST")
}

// highest are the times within a week from now at which the idle pods that policies want may be most: now, and whenever a
// policy changes. The part of the scale factor isn't in it, since it depends on jobs.
func highest(targets []*target, now time.Time) []moment {
	edges := map[time.Time]bool{}
	for _, t := range targets {
		edge, ok := t.schedule.NextChange(now)
		for n := 0; ok && n < edgesOfOne && edge.Before(now.Add(lookAhead)); n++ {
			edges[edge] = true
			edge, ok = t.schedule.NextChange(edge)
		}
	}
	moments := []moment{{at: now, first: true, counts: shares(targets, now)}}
	known := map[string]bool{fmt.Sprint(moments[0].counts): true}
	for _, at := range slices.SortedFunc(maps.Keys(edges), time.Time.Compare) {
		counts := shares(targets, at)
		if text := fmt.Sprint(counts); !known[text] { // every day is like the others
			known[text] = true
			moments = append(moments, moment{at: at, counts: counts})
		}
	}
	return moments
}

// shares are the idle pods wanted at a time; where a runner's limit is below what its pools want together, as many of each
// in turn.
func shares(targets []*target, at time.Time) []int {
	counts, wanted, left := make([]int, len(targets)), make([]int, len(targets)), map[string]int{}
	for i, t := range targets {
		wanted[i] = t.schedule.At(at).IdleCount
		if t.runner.Limit == 0 {
			counts[i] = wanted[i]
		}
		left[t.runner.Path] = t.runner.Limit
	}
	for given := true; given; {
		given = false
		for i, t := range targets {
			if counts[i] < wanted[i] && left[t.runner.Path] > 0 {
				counts[i]++
				left[t.runner.Path]--
				given = true
			}
		}
	}
	return counts
}
