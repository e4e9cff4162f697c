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

// moment is how many pods the policies want at a time.
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

// highest are the times within a week from now at which the pods that policies want may be most: now, and whenever a
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

// shares are the pods wanted at a time, within the limit of each runner: of its idle pods first, then of its pause pods, for
// which max_pause_pods is one too.
func shares(targets []*target, at time.Time) []int {
	counts, left := make([]int, len(targets)), map[string]int{}
	for _, t := range targets {
		if t.runner.Limit > 0 {
			left[t.runner.Path] = t.runner.Limit
		}
	}
	handOut(targets, at, false, left, counts)
	for _, t := range targets {
		rest, bounded := left[t.runner.Path]
		if most := t.runner.Kubernetes.Autoscaler.MaxPausePods; most > 0 && (!bounded || most < rest) {
			left[t.runner.Path] = most
		}
	}
	handOut(targets, at, true, left, counts)
	return counts
}

// handOut counts the idle pods, or the pause pods, that are wanted at a time; where less is left for a runner than its targets
// want together, as many of each in turn. A runner that isn't in left has no bound.
func handOut(targets []*target, at time.Time, pauses bool, left map[string]int, counts []int) {
	wanted := make([]int, len(targets))
	for i, t := range targets {
		if t.pauses() != pauses {
			continue
		}
		wanted[i] = t.schedule.At(at).IdleCount
		if _, bounded := left[t.runner.Path]; !bounded {
			counts[i] = wanted[i]
		}
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
}
