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
// Of the policies of a schedule the last one that matches wins; where none matches the schedule's default holds.
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
}

// Decision is what holds at a time, and why.
type Decision struct {
	Values
	Policy string // name of the policy in force, or DefaultPolicy
	Period string // the first of its periods that matches, as written; "" for the default
}

// EverWants says whether there is a time at which idle pods are, or may come to be, wanted.
func (s Schedule) EverWants() bool {
	wants := func(v Values) bool { return v.IdleCount > 0 || v.ScaleFactor > 0 }
	return wants(s.Default) || slices.ContainsFunc(s.Policies, func(p Policy) bool { return wants(p.Values) })
}

// At says which policy is in force at t.
func (s Schedule) At(t time.Time) Decision {
	for _, policy := range slices.Backward(s.Policies) {
		for _, period := range policy.Periods {
			if period.Contains(t) {
				return Decision{Values: policy.Values, Policy: policy.Name, Period: period.spec}
			}
		}
	}
	return Decision{Values: s.Default, Policy: DefaultPolicy}
}
