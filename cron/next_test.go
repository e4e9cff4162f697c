package cron

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// schedule has one policy for each spec, in one timezone; idle_count is the number of the policy.
func schedule(t *testing.T, timezone string, specs ...string) Schedule {
	t.Helper()
	var s Schedule
	for i, spec := range specs {
		s.Policies = append(s.Policies, Policy{Name: spec, Periods: []Period{period(t, spec, timezone)}, Values: Values{IdleCount: i + 1}})
	}
	return s
}

func TestNextChange(t *testing.T) {
	for when, c := range map[string]struct {
		timezone string
		specs    []string
		after    string
		want     string // "" = none
	}{
		"a policy begins":                           {"UTC", []string{"* 8-18 * * mon-fri"}, "2026-01-05 07:30:15 +0000", "2026-01-05 08:00:00 +0000"},
		"a policy ends":                             {"UTC", []string{"* 8-18 * * mon-fri"}, "2026-01-05 08:00:00 +0000", "2026-01-05 19:00:00 +0000"},
		"a policy begins after the weekend":         {"UTC", []string{"* 8-18 * * mon-fri"}, "2026-01-09 19:00:00 +0000", "2026-01-12 08:00:00 +0000"},
		"a policy of whole days runs over midnight": {"UTC", []string{"* * * * mon-fri"}, "2026-01-05 12:00:00 +0000", "2026-01-10 00:00:00 +0000"},
		"a single minute":                           {"UTC", []string{"30 8 * * *"}, "2026-01-05 08:30:00 +0000", "2026-01-05 08:31:00 +0000"},
		"just before a minute's end":                {"UTC", []string{"30 8 * * *"}, "2026-01-05 08:30:59.999999999 +0000", "2026-01-05 08:31:00 +0000"},
		"far away":                                  {"UTC", []string{"* * 29 2 *"}, "2096-03-01 00:00:00 +0000", "2104-02-29 00:00:00 +0000"},
		"always":                                    {"UTC", []string{"* * * * *"}, "2026-01-05 08:00:00 +0000", ""},
		"no policy":                                 {"UTC", nil, "2026-01-05 08:00:00 +0000", ""},
		"an earlier policy doesn't count":           {"UTC", []string{"* 8 * * *", "* * * * *"}, "2026-01-05 08:00:00 +0000", ""},
		"an earlier policy takes over": {"UTC", []string{"* 8-18 * * *", "* 12 * * *"}, "2026-01-05 12:00:00 +0000",
			"2026-01-05 13:00:00 +0000"},
		"a later policy takes over": {"UTC", []string{"* 8-18 * * *", "* 12 * * *"}, "2026-01-05 08:00:00 +0000", "2026-01-05 12:00:00 +0000"},

		"Berlin, the hour that doesn't happen is skipped": {"Europe/Berlin", []string{"* 2 * * *"}, "2026-03-28 03:00:00 +0100",
			"2026-03-30 02:00:00 +0200"},
		"Berlin, a period around it has no gap": {"Europe/Berlin", []string{"* 1-3 * * *"}, "2026-03-29 01:00:00 +0100",
			"2026-03-29 04:00:00 +0200"},
		"Berlin, a period that begins in it begins after it": {"Europe/Berlin", []string{"30-59 2-3 * * *"}, "2026-03-29 01:00:00 +0100",
			"2026-03-29 03:30:00 +0200"},
		"Berlin, a period up to it ends at it": {"Europe/Berlin", []string{"* 0-2 * * *"}, "2026-03-29 01:00:00 +0100",
			"2026-03-29 03:00:00 +0200"},
		"Berlin, the hour that happens twice is one run": {"Europe/Berlin", []string{"* 2 * * *"}, "2026-10-25 02:00:00 +0200",
			"2026-10-25 03:00:00 +0100"},
		"Berlin, half of it happens twice, first": {"Europe/Berlin", []string{"30-59 2 * * *"}, "2026-10-25 02:30:00 +0200",
			"2026-10-25 02:00:00 +0100"},
		"Berlin, half of it happens twice, again": {"Europe/Berlin", []string{"30-59 2 * * *"}, "2026-10-25 02:00:00 +0100",
			"2026-10-25 02:30:00 +0100"},
		"Berlin, the other half ends at the change": {"Europe/Berlin", []string{"0-29 2 * * *"}, "2026-10-25 02:30:00 +0200",
			"2026-10-25 02:00:00 +0100"},
		"New York, forward": {"America/New_York", []string{"* 0-2 * * *"}, "2026-03-08 00:00:00 -0500", "2026-03-08 03:00:00 -0400"},
		"New York, back":    {"America/New_York", []string{"* 1 * * *"}, "2026-11-01 01:59:59 -0400", "2026-11-01 02:00:00 -0500"},
		"Lord Howe, half an hour back": {"Australia/Lord_Howe", []string{"45-59 1 * * *"}, "2026-04-05 01:45:00 +1100",
			"2026-04-05 01:30:00 +1030"},
		"Lord Howe, half an hour forward": {"Australia/Lord_Howe", []string{"15-45 2 * * *"}, "2026-10-04 01:00:00 +1030",
			"2026-10-04 02:30:00 +1100"},
		"Kolkata": {"Asia/Kolkata", []string{"* 8 * * *"}, "2026-07-05 00:00:00 +0000", "2026-07-05 08:00:00 +0530"},
		"Apia, the day that didn't happen": {"Pacific/Apia", []string{"* * * * fri"}, "2011-12-29 12:00:00 -1000",
			"2012-01-06 00:00:00 +1400"},
		"Sao Paulo, the midnight that didn't happen": {"America/Sao_Paulo", []string{"* * 4 11 *"}, "2018-11-03 12:00:00 -0300",
			"2018-11-04 01:00:00 -0200"},
		"Amsterdam, when its offset had seconds": {"Europe/Amsterdam", []string{"* 8 * * *"}, "1930-01-01 00:00:00 +0000",
			"1930-01-01 07:40:28 +0000"},
	} {
		t.Run(when, func(t *testing.T) {
			after := at(t, c.after)
			got, ok := schedule(t, c.timezone, c.specs...).NextChange(after)
			require.Equal(t, c.want != "", ok)
			if ok {
				require.Equal(t, at(t, c.want).UTC(), got.UTC())
				require.Equal(t, after.Location(), got.Location())
			}
		})
	}
}

func TestNextChangeIsAboutWhatHoldsNotWhy(t *testing.T) {
	now := at(t, "2026-01-05 08:30:00 +0000")
	same := Values{IdleCount: 3}

	handOver := Schedule{Policies: []Policy{{Name: "p", Values: same, Periods: []Period{
		period(t, "* 8 * * *", "UTC"), period(t, "* 9 * * *", "UTC"),
	}}}}
	next, ok := handOver.NextChange(now)
	require.True(t, ok)
	require.Equal(t, at(t, "2026-01-05 10:00:00 +0000").UTC(), next.UTC(), "another period of the same policy is no change")

	named := Schedule{Default: same, Policies: []Policy{{Name: "p", Values: same, Periods: []Period{period(t, "* 9 * * *", "UTC")}}}}
	next, ok = named.NextChange(now)
	require.True(t, ok, "another policy is a change, even with the same values")
	require.Equal(t, at(t, "2026-01-05 09:00:00 +0000").UTC(), next.UTC())

	twins := Schedule{Policies: []Policy{
		{Name: "p", Values: same, Periods: []Period{period(t, "* 8 * * *", "UTC")}},
		{Name: "p", Values: same, Periods: []Period{period(t, "* 9 * * *", "UTC")}},
	}}
	next, ok = twins.NextChange(now)
	require.True(t, ok)
	require.Equal(t, at(t, "2026-01-05 10:00:00 +0000").UTC(), next.UTC(), "policies that can't be told apart are one")
}

func TestNextChangeOfPeriodsInSeveralTimezones(t *testing.T) {
	s := Schedule{Policies: []Policy{{Name: "office", Periods: []Period{
		period(t, "* 8-16 * * mon-fri", "Europe/Berlin"), period(t, "* 8-16 * * mon-fri", "America/New_York"),
	}}}}
	next, ok := s.NextChange(at(t, "2026-01-05 09:00:00 +0000"))
	require.True(t, ok)
	require.Equal(t, at(t, "2026-01-05 22:00:00 +0000").UTC(), next.UTC(), "they overlap")

	// Between the two days on which the clocks change, New York is an hour nearer to Berlin.
	next, ok = s.NextChange(at(t, "2026-03-12 09:00:00 +0000"))
	require.True(t, ok)
	require.Equal(t, at(t, "2026-03-12 21:00:00 +0000").UTC(), next.UTC())
}

func TestNextChangeIsAWallTime(t *testing.T) {
	s := schedule(t, "UTC", "* 8 * * *")
	now := time.Now()
	next, ok := s.NextChange(now)
	require.True(t, ok)
	require.Equal(t, next.Round(0), next, "no reading of the monotonic clock may be left in it")
	require.Equal(t, time.Local, next.Location())
}

// BenchmarkNextChange: the manager asks after every pass.
func BenchmarkNextChange(b *testing.B) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for name, specs := range map[string][]string{
		"a common schedule":              {"* 8-18 * * mon-fri", "* * * * sat,sun"},
		"nothing changes":                {"* * * * *"},
		"a pair that is always together": {"*/2 * * * *", "1-59/2 * * * *"},
		"a leap day":                     {"* * 29 2 *"},
	} {
		var policy Policy
		for _, spec := range specs {
			p, err := ParsePeriod(spec, "Europe/Berlin")
			require.NoError(b, err)
			policy.Periods = append(policy.Periods, p)
		}
		s := Schedule{Policies: []Policy{policy}}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.NextChange(now)
			}
		})
	}
}
