// Package cron decides which idle policy is in force at a time, and when that changes next.
//
// A period is a five-field cron expression (minute, hour, day of month, month, day of week) read as a range of time: it
// lasts through every minute that matches, from its first to its last second. `* 8-17 * * mon-fri` is 08:00:00 to
// 17:59:59 on working days; `0 8 * * *` is one minute a day. What the fields may hold:
//
//   - `*`, a number, a range `8-17`, a step over one of these (`*/15`, `8-18/2`; `10/5` means `10-59/5`), and lists of them
//     with commas. Months and days of the week may be written with the first three letters of their English names, in
//     any case. Sunday is 0 and 7, so `fri-sun`, `5-7` and `5-6,0` are the same.
//   - A day must match both day fields, but where both are restricted one of them is enough, as in unix cron:
//     `* * 1 * mon` is every first of the month and every Monday. A field is unrestricted when it has a bare `*`;
//     `*/2` restricts.
//
// The fields are compared with what a clock on the wall of the period's timezone shows. So where the clocks go forward,
// a period within the hour that is left out doesn't happen on that day; where they go back, it happens twice. A period
// that covers such an hour together with its neighbours is an hour shorter or longer on that day, without a gap.
//
// Of the policies of a schedule the last one that matches wins; where none matches the schedule's default holds. A
// schedule with a lead looks ahead by that much: a count that rises does so that long before its period begins, so that
// what it asks for can be ready when the period begins. A count that falls does so at its time.
//
// The package has no clock: every time is an argument. It also has no time zone database; a program for containers
// imports time/tzdata, so that zones are known in an image that has no files.
package cron

import (
	"slices"
	"time"
)

// DefaultPolicy is the name in a Decision where no policy matches.
const DefaultPolicy = "default"

// Values are what a policy sets. They are those of [[runners.autoscaler.policy]] in GitLab Runner.
type Values struct {
	IdleCount        int           // idle pods per image
	IdleTime         time.Duration // an idle pod ends itself after this; 0 = never
	ScaleFactor      float64       // wanted idle is at least the pods in use times this; 0 = off
	ScaleFactorLimit int           // cap of the factor's part; 0 = none
}

// Policy is a set of values and when it is in force: in any of its periods. A policy without periods never is.
type Policy struct {
	Name    string // for people, e.g. "idle_policy[1]"
	Periods []Period
	Values  Values
}

// Schedule is a runner's policies in the order of its file.
type Schedule struct {
	Default  Values
	Policies []Policy
	Lead     time.Duration // how long before its time an idle count rises; 0 = not at all
}

// Decision is what holds at a time, and why. Two are equal (==) if they say the same.
type Decision struct {
	Values
	Policy string // name of the policy in force, or DefaultPolicy
	Period string // the first of its periods that matches, as written; "" for the default
	// Ahead is the policy (or DefaultPolicy) whose larger count holds already, within the schedule's lead; "" where the count
	// is that of the policy in force. IdleTime is then the longer one of both, so that what is made for the period doesn't
	// end before it. The scale factor and its limit are those of the policy in force.
	Ahead  string
	Begins time.Time // when Ahead comes into force, in UTC; zero where there is none
}

// InForce names, for people, the policy that sets the count: the one in force, or one ahead of its period, as in
// "idle_policy[0] (ahead)".
func (d Decision) InForce() string {
	if d.Ahead != "" {
		return d.Ahead + " (ahead)"
	}
	return d.Policy
}

// EverWants says whether there is a time at which idle pods are, or may come to be, wanted.
func (s Schedule) EverWants() bool {
	wants := func(v Values) bool { return v.IdleCount > 0 || v.ScaleFactor > 0 }
	return wants(s.Default) || slices.ContainsFunc(s.Policies, func(p Policy) bool { return wants(p.Values) })
}

// At says what holds at t: which policy is in force, and whether a larger count of one that comes within the lead holds
// already.
func (s Schedule) At(t time.Time) Decision {
	d := s.inForce(t)
	if s.Lead <= 0 {
		return d
	}
	idleTime := d.IdleTime
	_, edge := s.steady(t)
	for end := t.Add(s.Lead); !edge.After(end); {
		winner, until := s.steady(edge)
		if ahead := s.decision(winner); ahead.IdleCount > d.IdleCount {
			d.IdleCount, d.IdleTime = ahead.IdleCount, longer(idleTime, ahead.IdleTime)
			d.Ahead, d.Begins = ahead.Policy, edge.UTC()
		}
		edge = until
	}
	return d
}

// inForce is At without the lead.
func (s Schedule) inForce(t time.Time) Decision {
	for _, policy := range slices.Backward(s.Policies) {
		for _, period := range policy.Periods {
			if period.Contains(t) {
				return Decision{Values: policy.Values, Policy: policy.Name, Period: period.spec}
			}
		}
	}
	return Decision{Values: s.Default, Policy: DefaultPolicy}
}

// longer is the longer of two idle times, of which 0 is for ever.
func longer(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
