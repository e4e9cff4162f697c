package cron

import (
	"math/bits"
	"slices"
	"time"
)

// horizon bounds the search of NextChange, in years. The rarest period, 29 February, can be eight years away.
const horizon = 9

// NextChange finds the next instant after `after` at which another policy, or other values, come into force than at
// `after`, or a larger count begins to hold ahead of its policy; that another period of the same policy matches is no
// change. It is a whole minute of the wall clock, or the moment when clocks are put forward or back, or one of these less
// the lead. It returns false when there is none, in the next nine years.
func (s Schedule) NextChange(after time.Time) (time.Time, bool) {
	current := s.winner(after)
	end := after.AddDate(horizon, 0, 0)
	next, ok := s.search(after, end, func(winner int) bool { return winner != current && !s.same(winner, current) })
	if s.Lead <= 0 {
		return next, ok
	}
	if ok {
		end = next
	}
	// Until then the policy in force stays, so nothing leaves the lead's span, and what enters it matters if it is more.
	count := s.At(after).IdleCount
	rise, rises := s.search(after.Add(s.Lead), end.Add(s.Lead), func(winner int) bool { return s.decision(winner).IdleCount > count })
	if rises {
		return rise.Add(-s.Lead), true
	}
	return next, ok
}

// search finds the first instant from `from` on, and before end, at which the policy in force is one that is wanted.
func (s Schedule) search(from, end time.Time, wanted func(winner int) bool) (time.Time, bool) {
	for t := from; t.Before(end); {
		winner, until := s.steady(t)
		if wanted(winner) {
			return t, true
		}
		t = until.In(from.Location())
	}
	return time.Time{}, false
}

// winner is the index of the policy in force at t, -1 for the default.
func (s Schedule) winner(t time.Time) int {
	w, _ := s.steady(t)
	return w
}

// same says whether two winners are indistinguishable in a Decision.
func (s Schedule) same(i, j int) bool {
	a, b := s.decision(i), s.decision(j)
	return a == b
}

func (s Schedule) decision(i int) Decision {
	if i < 0 {
		return Decision{Values: s.Default, Policy: DefaultPolicy}
	}
	return Decision{Values: s.Policies[i].Values, Policy: s.Policies[i].Name}
}

// steady returns the policy in force at t and a later instant until which it certainly stays in force. Policies before
// the one in force can't change that, so they are not looked at.
func (s Schedule) steady(t time.Time) (winner int, until time.Time) {
	until = t.AddDate(horizon, 0, 0)
	for i, policy := range slices.Backward(s.Policies) {
		matches, same := policy.steady(t)
		if same.Before(until) {
			until = same
		}
		if matches {
			return i, until
		}
	}
	return -1, until
}

// steady says whether the policy matches at t, and until when that certainly stays so.
func (p Policy) steady(t time.Time) (matches bool, until time.Time) {
	var longest, shortest time.Time
	for rest := p.Periods; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Timezone() == rest[0].Timezone() {
			n++
		}
		m, u := steady(t, rest[:n])
		rest = rest[n:]
		if m && u.After(longest) {
			matches, longest = true, u
		}
		if shortest.IsZero() || u.Before(shortest) {
			shortest = u
		}
	}
	switch {
	case matches:
		return true, longest
	case shortest.IsZero():
		return false, t.AddDate(horizon, 0, 0)
	}
	return false, shortest
}

// steady does it for periods of one timezone, taken together: whether any of them matches at t, and an instant until
// which that certainly stays so, at most until the next midnight, or the next month where none of them has days in this
// one. Within the bounds of one UTC offset the wall clock runs evenly, so a step on it is a step in time; at the bounds
// the question is asked anew.
func steady(t time.Time, periods []Period) (matches bool, until time.Time) {
	location := periods[0].location
	if location == nil {
		return false, t.AddDate(horizon, 0, 0)
	}
	if slices.ContainsFunc(periods, Period.isAlways) {
		return true, t.AddDate(horizon, 0, 0) // the common case that would else be looked for day by day
	}
	local := t.In(location)
	intoMinute := time.Duration(local.Second())*time.Second + time.Duration(local.Nanosecond())
	minuteOfDay := local.Hour()*60 + local.Minute()

	masks, months := dayMasks(local, periods)
	matches = has(masks[local.Hour()], local.Minute())
	run := runLength(masks, minuteOfDay, matches)
	if !has(months, int(local.Month())) {
		firstOfNext := time.Date(local.Year(), local.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		today := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
		run = int(firstOfNext.Sub(today)/time.Minute) - minuteOfDay
	}
	until = t.Add(time.Duration(run)*time.Minute - intoMinute)
	if _, offsetEnds := local.ZoneBounds(); !offsetEnds.IsZero() && offsetEnds.Before(until) {
		until = offsetEnds
	}
	return matches, until
}

// dayMasks returns for each hour of the date that local shows the minutes that match, and the months that any period has.
func dayMasks(local time.Time, periods []Period) (masks [24]uint64, months uint64) {
	for _, p := range periods {
		months |= p.months
		if !p.containsDay(local) {
			continue
		}
		for hour := range masks {
			if has(p.hours, hour) {
				masks[hour] |= p.minutes
			}
		}
	}
	return masks, months
}

// runLength counts the minutes from minuteOfDay on, at most to midnight, that all match or all don't.
func runLength(masks [24]uint64, minuteOfDay int, matches bool) int {
	run := 0
	for hour, minute := minuteOfDay/60, minuteOfDay%60; hour < 24; hour, minute = hour+1, 0 {
		mask := masks[hour]
		if matches {
			mask = ^mask
		}
		// The first bit at or after minute that differs; beyond bit 59 there are no minutes.
		first := bits.TrailingZeros64(mask >> minute << minute)
		if first < 60 {
			return run + first - minute
		}
		run += 60 - minute
	}
	return run
}
