package cron

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reference decides whether a minute matches in the most plain way there is: each field is written out as the set of its
// values, and compared with what a calendar shows. It shares nothing with the package.
type reference struct {
	sets     [5][60]bool
	star     [5]bool
	location *time.Location
}

func newReference(spec string, location *time.Location) reference {
	r := reference{location: location}
	bounds := [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}
	names := strings.NewReplacer("-sun", "-7", "sun", "0", "mon", "1", "tue", "2", "wed", "3", "thu", "4", "fri", "5", "sat", "6",
		"jan", "1", "feb", "2", "mar", "3", "apr", "4", "may", "5", "jun", "6", "jul", "7", "aug", "8", "sep", "9", "oct", "10", "nov", "11", "dec", "12")
	for i, field := range strings.Fields(names.Replace(strings.ToLower(spec))) {
		for element := range strings.SplitSeq(field, ",") {
			from, to, step := bounds[i][0], bounds[i][1], 1
			values, stepText, stepped := strings.Cut(element, "/")
			if stepped {
				step, _ = strconv.Atoi(stepText)
			}
			if low, high, ranged := strings.Cut(values, "-"); values != "*" {
				from, _ = strconv.Atoi(low)
				switch {
				case ranged:
					to, _ = strconv.Atoi(high)
				case !stepped:
					to = from
				}
			}
			if i == 4 && to == 7 && !strings.Contains(values, "-7") && values != "7" {
				to = 6 // the week of a star or of an open step ends with Saturday
			}
			for v := from; v <= to; v += step {
				r.sets[i][v] = true
			}
			r.star[i] = r.star[i] || values == "*" && step == 1
		}
	}
	if r.sets[4][7] {
		r.sets[4][0] = true
	}
	return r
}

func (r reference) contains(t time.Time) bool { return r.matches(dateOf(t.In(r.location))) }

// date is what clock and calendar show, in the order of the fields.
type date [5]int

func dateOf(t time.Time) date {
	return date{t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())}
}

// datesOf are the dates at each minute from `from` on.
func datesOf(from time.Time, n int, location *time.Location) []date {
	dates := make([]date, n)
	for i := range dates {
		dates[i] = dateOf(from.Add(time.Duration(i) * time.Minute).In(location))
	}
	return dates
}

func (r reference) matches(d date) bool {
	day, weekday := r.sets[2][d[2]], r.sets[4][d[4]]
	matches := day && weekday
	if !r.star[2] && !r.star[4] {
		matches = day || weekday
	}
	return r.sets[0][d[0]] && r.sets[1][d[1]] && r.sets[3][d[3]] && matches
}

// generated is a schedule in both forms.
type generated struct {
	schedule   Schedule
	references [][]reference
	specs      []string
}

func generate(t *testing.T, random *rand.Rand, zones []string) generated {
	times := []time.Duration{0, 5 * time.Minute, time.Hour}
	leads := []time.Duration{0, time.Minute, 90 * time.Second, 7 * time.Minute, 20 * time.Minute}
	values := func() Values {
		return Values{IdleCount: random.IntN(4), IdleTime: times[random.IntN(len(times))], ScaleFactor: float64(random.IntN(2))}
	}
	g := generated{schedule: Schedule{Default: values(), Lead: leads[random.IntN(len(leads))]}}
	for i := range 1 + random.IntN(4) {
		policy := Policy{Name: fmt.Sprintf("idle_policy[%d]", i), Values: values()}
		zone := zones[random.IntN(len(zones))]
		var references []reference
		for len(policy.Periods) < 1+random.IntN(3) {
			if random.IntN(6) == 0 {
				zone = zones[random.IntN(len(zones))]
			}
			spec := randomSpec(random)
			p, err := ParsePeriod(spec, zone)
			if err != nil {
				require.ErrorContains(t, err, "never comes")
				continue
			}
			policy.Periods = append(policy.Periods, p)
			references = append(references, newReference(spec, p.location))
			g.specs = append(g.specs, policy.Name+" "+zone+" "+spec)
		}
		g.schedule.Policies = append(g.schedule.Policies, policy)
		g.references = append(g.references, references)
	}
	return g
}

// randomSpec favours what people write, and the hours in which clocks change.
func randomSpec(random *rand.Rand) string {
	pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	number := func(from, to int) int { return from + random.IntN(to-from+1) }
	field := func(from, to int) string {
		low := number(from, to)
		high := number(low, to)
		switch random.IntN(5) {
		case 0:
			return fmt.Sprintf("%d-%d", low, high)
		case 1:
			return fmt.Sprintf("%d-%d/%d", low, high, number(1, to-from))
		case 2:
			return fmt.Sprintf("*/%d", number(1, to-from))
		case 3:
			return fmt.Sprintf("%d/%d,%d", low, number(1, to-from), number(from, to))
		}
		return strconv.Itoa(low)
	}
	return strings.Join([]string{
		pick("*", "*", "*", "0-29", "30-59", "45-59", "0", field(0, 59)),
		pick("*", "8-17", "1-3", "2", "0-2", "3-23", "22-23,0-5", field(0, 23)),
		pick("*", "*", "*", "1", "25-31", field(1, 31)),
		pick("*", "*", "*", "*", "mar-apr,10-11", field(1, 12)),
		pick("*", "*", "mon-fri", "sat-sun", "0,6", "7", "sun", "1-7/2", field(0, 7)),
	}, " ")
}

// TestAgainstAReference walks minute by minute through weeks around the changes of clocks (through whole years with
// IDLECOUNT_LONG_TESTS=1) and compares At with the reference, then NextChange with the changes that were seen.
func TestAgainstAReference(t *testing.T) {
	date := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	days, rounds := 21, 4
	if os.Getenv("IDLECOUNT_LONG_TESTS") != "" {
		days, rounds = 366, 40
	}
	for name, c := range map[string]struct {
		zones []string
		from  time.Time
	}{
		"Berlin, spring":            {[]string{"Europe/Berlin"}, date(2026, 3, 18)},
		"Berlin, autumn":            {[]string{"Europe/Berlin"}, date(2026, 10, 14)},
		"New York, spring":          {[]string{"America/New_York"}, date(2026, 2, 26)},
		"New York, autumn":          {[]string{"America/New_York"}, date(2026, 10, 22)},
		"Lord Howe, spring":         {[]string{"Australia/Lord_Howe"}, date(2026, 9, 24)},
		"Lord Howe, autumn":         {[]string{"Australia/Lord_Howe"}, date(2026, 3, 26)},
		"Kolkata":                   {[]string{"Asia/Kolkata"}, date(2026, 6, 20)},
		"Apia, a day left out":      {[]string{"Pacific/Apia"}, date(2011, 12, 20)},
		"Sao Paulo, at midnight":    {[]string{"America/Sao_Paulo"}, date(2018, 10, 25)},
		"UTC, a leap day":           {[]string{"UTC"}, date(2028, 2, 20)},
		"several in one schedule":   {[]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}, date(2026, 10, 14)},
		"several, across the March": {[]string{"Europe/Berlin", "America/New_York"}, date(2026, 3, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(c.from.Unix())))
			for range rounds {
				compare(t, random, generate(t, random, c.zones), c.from, days)
			}
		})
	}
}

// TestEveryMinuteOfAYear does it for all minutes of 2026: for what people write, and for what nobody would.
func TestEveryMinuteOfAYear(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			common := written(t, 10*time.Minute,
				spec{zone, "* 8-18 * * mon-fri", Values{IdleCount: 10, IdleTime: time.Hour}},
				spec{zone, "30-59 7 * * mon-fri", Values{IdleCount: 4}},
				spec{zone, "* 1-2 * * *", Values{IdleCount: 2, IdleTime: time.Minute}}, // where clocks change
				spec{zone, "* * * * sat,sun", Values{}},
				spec{zone, "0 9 1 * *", Values{IdleCount: 30, IdleTime: 0}},
			)
			random := rand.New(rand.NewPCG(3, uint64(len(zone))))
			compare(t, random, common, from, 365)
			compare(t, random, generate(t, random, []string{zone}), from, 365)
		})
	}
}

// spec is a policy with one period.
type spec struct {
	zone, period string
	values       Values
}

// written is a schedule of given policies, in both forms.
func written(t *testing.T, lead time.Duration, specs ...spec) generated {
	g := generated{schedule: Schedule{Lead: lead, Default: Values{IdleCount: 1, IdleTime: 30 * time.Minute}}}
	for i, s := range specs {
		p, err := ParsePeriod(s.period, s.zone)
		require.NoError(t, err)
		g.schedule.Policies = append(g.schedule.Policies, Policy{Name: fmt.Sprintf("idle_policy[%d]", i), Periods: []Period{p}, Values: s.values})
		g.references = append(g.references, []reference{newReference(s.period, p.location)})
		g.specs = append(g.specs, s.period)
	}
	return g
}

// minutes are the decisions without a lead at each minute from `from` on.
func (g generated) minutes(from time.Time, n int) []Decision {
	decisions := make([]Decision, n)
	calendars := map[*time.Location][]date{}
	for i := range decisions {
		decisions[i] = Decision{Values: g.schedule.Default, Policy: DefaultPolicy}
	}
	for i, references := range g.references {
		for j, r := range slices.Backward(references) { // the first that matches is named, so it comes last
			calendar, ok := calendars[r.location]
			if !ok {
				calendar = datesOf(from, n, r.location)
				calendars[r.location] = calendar
			}
			policy := g.schedule.Policies[i]
			decision := Decision{Values: policy.Values, Policy: policy.Name, Period: policy.Periods[j].String()}
			for minute, d := range calendar {
				if r.matches(d) {
					decisions[minute] = decision
				}
			}
		}
	}
	return decisions
}

// ahead is the decision with the lead at the i-th of minutes, or at any time within it: by looking at all minutes that
// the lead reaches.
func ahead(minutes []Decision, from time.Time, i, last int) Decision {
	d := minutes[i]
	for j := i + 1; j <= last; j++ {
		if m := minutes[j]; m.IdleCount > d.IdleCount {
			d.IdleCount, d.Ahead, d.Begins = m.IdleCount, m.Policy, from.Add(time.Duration(j)*time.Minute)
			d.IdleTime = max(minutes[i].IdleTime, m.IdleTime)
			if minutes[i].IdleTime == 0 || m.IdleTime == 0 {
				d.IdleTime = 0
			}
		}
	}
	return d
}

func compare(t *testing.T, random *rand.Rand, g generated, from time.Time, days int) {
	t.Helper()
	lead := g.schedule.Lead
	n := days * 24 * 60
	minutes := g.minutes(from, n+int(lead/time.Minute)+2)
	want := func(at time.Time) Decision {
		return ahead(minutes, from, int(at.Sub(from)/time.Minute), int(at.Add(lead).Sub(from)/time.Minute))
	}
	// A lead of whole minutes changes something at whole minutes only, one of 90 s at half ones too.
	step := time.Minute
	if lead%time.Minute != 0 {
		step = 30 * time.Second
	}
	var changes []time.Time
	end := from.Add(time.Duration(n) * time.Minute)
	last := want(from)
	for at := from; at.Before(end); at = at.Add(step) {
		decision := want(at)
		if got := g.schedule.At(at); got != decision {
			t.Fatalf("at %s: got %+v, want %+v, of %q with a lead of %s", at, got, decision, g.specs, lead)
		}
		if now := decision; now != last {
			now.Period, last.Period = "", "" // another period of the same policy is no change
			if now != last {
				changes = append(changes, at)
			}
		}
		last = decision
	}
	checkChanges(t, random, g, from, end, changes)
}

// checkChanges compares NextChange with the changes that were seen between from and end.
func checkChanges(t *testing.T, random *rand.Rand, g generated, from, end time.Time, changes []time.Time) {
	t.Helper()
	check := func(after time.Time) {
		got, ok := g.schedule.NextChange(after)
		i, _ := slices.BinarySearchFunc(changes, after, func(change, after time.Time) int {
			if change.After(after) {
				return 1
			}
			return -1
		})
		switch {
		case i < len(changes):
			if !ok || !got.Equal(changes[i]) {
				t.Fatalf("after %s: got %s %v, want %s, of %q with a lead of %s", after, got, ok, changes[i], g.specs, g.schedule.Lead)
			}
		case ok && got.Before(end):
			t.Fatalf("after %s: got %s, want none before %s, of %q with a lead of %s", after, got, end, g.specs, g.schedule.Lead)
		}
	}
	check(from)
	for i, change := range changes {
		if i < 50 || random.IntN(len(changes)) < 2000 { // a schedule of single minutes has hundreds of thousands in a year
			check(change)
			check(change.Add(-time.Nanosecond))
		}
	}
	for range 50 {
		check(from.Add(time.Duration(random.Int64N(int64(end.Sub(from))))))
	}
}

// TestEveryAcceptedPeriodComes: a period that could never match would be a policy that silently does nothing.
func TestEveryAcceptedPeriodComes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		spec := randomSpec(random)
		p, err := ParsePeriod(spec, "UTC")
		if err != nil {
			continue
		}
		s := Schedule{Policies: []Policy{{Name: "p", Periods: []Period{p}}}}
		now := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC) // no leap day for eight years
		if s.At(now).Policy == DefaultPolicy {
			next, ok := s.NextChange(now)
			require.True(t, ok, spec)
			require.Equal(t, "p", s.At(next).Policy, spec)
		}
	}
}

// FuzzParsePeriod: whatever is accepted means the same to the reference, and nothing panics.
func FuzzParsePeriod(f *testing.F) {
	for _, spec := range []string{
		"* 8-17 * * mon-fri", "*/15 0-23/2 1,15 jan-mar 0-7", "TZ=Europe/Berlin", "TZ= * * * * *", "@every 1h", "? ? ? ? ?", "1,,2 * * * *",
		"59/59 23/23 31/30 12/11 7/7", "* * 30 2 *", "\x00 * * * *", "*/*/* - , /", "* * * * sun-sun", "* * * * sun-mon/3,SAT-SUN",
	} {
		f.Add(spec, "Europe/Berlin", int64(1774746000))
	}
	f.Fuzz(func(t *testing.T, spec, timezone string, seconds int64) {
		p, err := ParsePeriod(spec, timezone)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.Equal(t, spec, p.String())
		now := time.Unix(seconds%(1<<34), 0)
		require.Equal(t, newReference(spec, p.location).contains(now), p.Contains(now))
		s := Schedule{Policies: []Policy{{Name: "p", Periods: []Period{p}}}}
		if next, ok := s.NextChange(now); ok {
			require.True(t, next.After(now))
			require.NotEqual(t, p.Contains(now), p.Contains(next))
			require.Equal(t, p.Contains(now), p.Contains(next.Add(-time.Nanosecond)))
		}
	})
}
