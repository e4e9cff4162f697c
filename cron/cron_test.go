package cron

import (
	"testing"
	"time"
	_ "time/tzdata" // the tests mean the same zones everywhere

	"github.com/stretchr/testify/require"
)

func period(t *testing.T, spec, timezone string) Period {
	t.Helper()
	p, err := ParsePeriod(spec, timezone)
	require.NoError(t, err)
	return p
}

// at reads a local time with its offset, e.g. "2026-03-29 01:59:59 +0100".
func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse("2006-01-02 15:04:05 -0700", text)
	require.NoError(t, err)
	return parsed
}

func TestAPeriodIsEveryMinuteThatMatches(t *testing.T) {
	for when, c := range map[string]struct {
		spec    string
		in, out []string // in UTC; 2026-01-05 is a Monday
	}{
		"a range of hours lasts to the end of its last": {
			"* 8-17 * * mon-fri",
			[]string{"2026-01-05 08:00:00", "2026-01-05 17:59:59", "2026-01-09 12:00:00"},
			[]string{"2026-01-05 07:59:59", "2026-01-05 18:00:00", "2026-01-10 12:00:00", "2026-01-11 12:00:00"},
		},
		"a single minute lasts a minute": {
			"0 8 * * *",
			[]string{"2026-01-05 08:00:00", "2026-01-05 08:00:59"},
			[]string{"2026-01-05 07:59:59", "2026-01-05 08:01:00"},
		},
		"lists, steps and names": {
			"0,30-40/5,*/59 */12 1-15/7 JAN,jul *",
			[]string{"2026-01-01 00:00:00", "2026-01-08 12:30:00", "2026-07-15 12:40:59", "2026-07-15 12:59:00"},
			[]string{"2026-01-01 00:01:00", "2026-01-08 12:45:00", "2026-01-02 12:30:00", "2026-02-01 00:00:00", "2026-01-08 13:30:00"},
		},
		"a number with a step goes on to the field's end": {
			"50/5 * * * *",
			[]string{"2026-01-05 08:50:00", "2026-01-05 08:55:00"},
			[]string{"2026-01-05 08:45:00", "2026-01-05 08:51:00"},
		},
		"a day of the week with a step goes on to Saturday": {
			"* * * * 1/2",
			[]string{"2026-01-05 00:00:00", "2026-01-07 00:00:00", "2026-01-09 00:00:00"},
			[]string{"2026-01-06 00:00:00", "2026-01-10 00:00:00", "2026-01-11 00:00:00"},
		},
		"Sunday is 0": {"* * * * 0", []string{"2026-01-11 00:00:00"}, []string{"2026-01-10 23:59:59", "2026-01-12 00:00:00"}},
		"Sunday is 7": {"* * * * 7", []string{"2026-01-11 00:00:00"}, []string{"2026-01-10 23:59:59", "2026-01-12 00:00:00"}},
		"Sunday ends a range as 7": {
			"* * * * 5-7", []string{"2026-01-09 00:00:00", "2026-01-10 00:00:00", "2026-01-11 23:59:59"},
			[]string{"2026-01-08 23:59:59", "2026-01-12 00:00:00"},
		},
		"Sunday ends a range by name": {
			"* * * * Sat-Sun", []string{"2026-01-10 00:00:00", "2026-01-11 23:59:59"},
			[]string{"2026-01-09 23:59:59", "2026-01-12 00:00:00"},
		},
		"Sunday begins a range as 0": {
			"* * * * sun-mon", []string{"2026-01-11 00:00:00", "2026-01-12 00:00:00"}, []string{"2026-01-10 00:00:00", "2026-01-13 00:00:00"},
		},
		"a range of the whole week": {"* * * * 0-7", []string{"2026-01-10 00:00:00", "2026-01-11 00:00:00", "2026-01-12 00:00:00"}, nil},
		"where both day fields are restricted one is enough": {
			"* * 1 * mon",
			[]string{"2026-01-01 00:00:00", "2026-01-05 00:00:00", "2026-02-01 00:00:00"},
			[]string{"2026-01-02 00:00:00", "2026-01-11 00:00:00"},
		},
		"a step restricts a day field": {
			"* * */10 * mon", // the 1st, 11th, 21st, 31st, and every Monday
			[]string{"2026-01-01 00:00:00", "2026-01-05 00:00:00", "2026-01-11 00:00:00"},
			[]string{"2026-01-02 00:00:00"},
		},
		"a step of one doesn't": {
			"* * */1 * mon", []string{"2026-01-05 00:00:00"}, []string{"2026-01-01 00:00:00", "2026-01-11 00:00:00"},
		},
		"a star among others doesn't either": {
			"* * *,13 * mon", []string{"2026-01-05 00:00:00"}, []string{"2026-01-13 00:00:00"},
		},
		"a date that can't be, with a day of the week that can": {
			"* * 30 2 mon", []string{"2026-02-02 00:00:00"}, []string{"2026-02-03 00:00:00", "2026-01-30 00:00:00"},
		},
		"the last of February, in a leap year": {
			"* * 29 feb *", []string{"2028-02-29 12:00:00"}, []string{"2026-02-28 12:00:00", "2028-03-01 00:00:00"},
		},
		"blanks around and between the fields": {
			"  *\t8  * * * ", []string{"2026-01-05 08:00:00"}, []string{"2026-01-05 09:00:00"},
		},
	} {
		t.Run(when, func(t *testing.T) {
			p := period(t, c.spec, "UTC")
			for _, in := range c.in {
				require.True(t, p.Contains(at(t, in+" +0000")), in)
			}
			for _, out := range c.out {
				require.False(t, p.Contains(at(t, out+" +0000")), out)
			}
		})
	}
}

func TestAPeriodIsReadOnTheClockOfItsTimezone(t *testing.T) {
	for when, c := range map[string]struct {
		spec, timezone string
		in, out        []string
	}{
		"Berlin, winter and summer": {
			"* 8 * * *", "Europe/Berlin",
			[]string{"2026-01-05 07:00:00 +0000", "2026-07-05 06:59:59 +0000"},
			[]string{"2026-01-05 06:59:59 +0000", "2026-07-05 07:00:00 +0000"},
		},
		"Berlin, the hour that doesn't happen": {
			"* 2 29 3 *", "Europe/Berlin", nil,
			[]string{"2026-03-29 01:59:59 +0100", "2026-03-29 03:00:00 +0200"},
		},
		"Berlin, the hour that happens twice": {
			"* 2 25 10 *", "Europe/Berlin",
			[]string{"2026-10-25 02:00:00 +0200", "2026-10-25 02:59:59 +0200", "2026-10-25 02:00:00 +0100", "2026-10-25 02:59:59 +0100"},
			[]string{"2026-10-25 01:59:59 +0200", "2026-10-25 03:00:00 +0100"},
		},
		"New York, the hour that happens twice": {
			"30 1 1 nov *", "America/New_York",
			[]string{"2026-11-01 01:30:00 -0400", "2026-11-01 01:30:59 -0500"},
			[]string{"2026-11-01 01:31:00 -0400", "2026-11-01 01:29:59 -0500"},
		},
		"Lord Howe, half an hour that happens twice": {
			"30-59 1 * 4 sun", "Australia/Lord_Howe",
			[]string{"2026-04-05 01:30:00 +1100", "2026-04-05 01:59:59 +1100", "2026-04-05 01:30:00 +1030"},
			[]string{"2026-04-05 01:29:59 +1100", "2026-04-05 02:00:00 +1030"},
		},
		"Lord Howe, half an hour that doesn't happen": {
			"0-29 2 4 10 *", "Australia/Lord_Howe", nil,
			[]string{"2026-10-04 01:59:59 +1030", "2026-10-04 02:30:00 +1100"},
		},
		"Kolkata, half an hour off": {
			"0 8 * * *", "Asia/Kolkata",
			[]string{"2026-07-05 02:30:00 +0000"}, []string{"2026-07-05 02:00:00 +0000", "2026-07-05 02:31:00 +0000"},
		},
		"the day of the week is that of the zone": {
			"* * * * mon", "Pacific/Auckland",
			[]string{"2026-01-04 12:00:00 +0000"}, []string{"2026-01-05 12:00:00 +0000"},
		},
	} {
		t.Run(when, func(t *testing.T) {
			p := period(t, c.spec, c.timezone)
			for _, in := range c.in {
				require.True(t, p.Contains(at(t, in)), in)
			}
			for _, out := range c.out {
				require.False(t, p.Contains(at(t, out)), out)
			}
		})
	}
}

func TestTimezoneOfAPeriod(t *testing.T) {
	p := period(t, "* 8 * * *", "")
	require.Equal(t, "Local", p.Timezone())
	require.True(t, p.Contains(time.Date(2026, 1, 5, 8, 0, 0, 0, time.Local)))
	require.False(t, p.Contains(time.Date(2026, 1, 5, 9, 0, 0, 0, time.Local)))
	require.Equal(t, "Europe/Berlin", period(t, "* 8 * * *", "Europe/Berlin").Timezone())
	require.NoError(t, CheckTimezone(""))
	require.NoError(t, CheckTimezone("UTC"))
	require.Error(t, CheckTimezone("Mars/Olympus"))
}

func TestTheZeroPeriodIsNever(t *testing.T) {
	now := at(t, "2026-01-05 08:00:00 +0000")
	require.False(t, Period{}.Contains(now))
	require.Empty(t, Period{}.Timezone())
	_, changes := Schedule{Policies: []Policy{{Name: "never", Periods: []Period{{}}}}}.NextChange(now)
	require.False(t, changes)
}

func TestPeriodsThatAreRefused(t *testing.T) {
	const five = "(minute, hour, day of month, month, day of week)"
	for spec, want := range map[string]string{
		"":                               `period "" is empty: it needs five fields ` + five,
		"  ":                             `period "  " is empty: it needs five fields ` + five,
		"*":                              `period "*" has one field: it needs five ` + five,
		"* * * *":                        `period "* * * *" has 4 fields: it needs five ` + five,
		"0 * 8 * * *":                    `period "0 * 8 * * *" has 6 fields: seconds and years are not supported, the five are minute, hour, day of month, month, day of week`,
		"0 * 8 * * mon *":                `period "0 * 8 * * mon *" has 7 fields: seconds and years are not supported, the five are minute, hour, day of month, month, day of week`,
		"* * * * * * * *":                `period "* * * * * * * *" has 8 fields: it needs five ` + five,
		"TZ=Europe/Berlin":               "period \"TZ=Europe/Berlin\": the timezone has a key of its own, `timezone`; take \"TZ=Europe/Berlin\" away",
		"TZ=Europe/Berlin * * * * *":     "period \"TZ=Europe/Berlin * * * * *\": the timezone has a key of its own, `timezone`; take \"TZ=Europe/Berlin\" away",
		"CRON_TZ=UTC * * * * *":          "period \"CRON_TZ=UTC * * * * *\": the timezone has a key of its own, `timezone`; take \"CRON_TZ=UTC\" away",
		"@daily":                         `period "@daily": @daily names a moment, a period is a range of time; write five fields ` + five,
		"@every 5m":                      `period "@every 5m": @every names a moment, a period is a range of time; write five fields ` + five,
		"60 * * * *":                     `period "60 * * * *": minute: "60" is not allowed here (allowed: 0-59)`,
		"* 24 * * *":                     `period "* 24 * * *": hour: "24" is not allowed here (allowed: 0-23)`,
		"* * 0 * *":                      `period "* * 0 * *": day of month: "0" is not allowed here (allowed: 1-31)`,
		"* * 32 * *":                     `period "* * 32 * *": day of month: "32" is not allowed here (allowed: 1-31)`,
		"* * * 13 *":                     `period "* * * 13 *": month: "13" is not allowed here (allowed: 1-12 or jan-dec)`,
		"* * * january *":                `period "* * * january *": month: "january" is not allowed here (allowed: 1-12 or jan-dec)`,
		"* * * * 8":                      `period "* * * * 8": day of week: "8" is not allowed here (allowed: 0-7 or mon-sun, Sunday is 0 and 7)`,
		"mon * * * *":                    `period "mon * * * *": minute: "mon" is not allowed here (allowed: 0-59)`,
		"* 18-8 * * *":                   `period "* 18-8 * * *": hour: "18-8": the range runs backwards, write it as two (allowed: 0-23)`,
		"* * * * fri-mon":                `period "* * * * fri-mon": day of week: "fri-mon": the range runs backwards, write it as two (allowed: 0-7 or mon-sun, Sunday is 0 and 7)`,
		"* 8-17-20 * * *":                `period "* 8-17-20 * * *": hour: "17-20" is not allowed here (allowed: 0-23)`,
		"* -5 * * *":                     `period "* -5 * * *": hour: "" is not allowed here (allowed: 0-23)`,
		"* 5- * * *":                     `period "* 5- * * *": hour: "" is not allowed here (allowed: 0-23)`,
		"* +5 * * *":                     `period "* +5 * * *": hour: "+5" is not allowed here (allowed: 0-23)`,
		"* *-5 * * *":                    `period "* *-5 * * *": hour: "*" is not allowed here (allowed: 0-23)`,
		"* 5-* * * *":                    `period "* 5-* * * *": hour: "*" is not allowed here (allowed: 0-23)`,
		"* 8,,9 * * *":                   `period "* 8,,9 * * *": hour: "" is not allowed here (allowed: 0-23)`,
		"* , * * *":                      `period "* , * * *": hour: "" is not allowed here (allowed: 0-23)`,
		"? * * * *":                      `period "? * * * *": minute: "?" is not allowed here (allowed: 0-59)`,
		"* * L * *":                      `period "* * L * *": day of month: "L" is not allowed here (allowed: 1-31)`,
		"* * * * mon#1":                  `period "* * * * mon#1": day of week: "mon#1" is not allowed here (allowed: 0-7 or mon-sun, Sunday is 0 and 7)`,
		"*/0 * * * *":                    `period "*/0 * * * *": minute: "*/0": the step after / must be a number from 1 up`,
		"*/-1 * * * *":                   `period "*/-1 * * * *": minute: "*/-1": the step after / must be a number from 1 up`,
		"*/+5 * * * *":                   `period "*/+5 * * * *": minute: "*/+5": the step after / must be a number from 1 up`,
		"*/ * * * *":                     `period "*/ * * * *": minute: "*/": the step after / must be a number from 1 up`,
		"*/5/5 * * * *":                  `period "*/5/5 * * * *": minute: "*/5/5": the step after / must be a number from 1 up`,
		"*/60 * * * *":                   `period "*/60 * * * *": minute: "*/60": the step is larger than the field (0-59)`,
		"*/99999999999999999999 * * * *": `period "*/99999999999999999999 * * * *": minute: "*/99999999999999999999": the step after / must be a number from 1 up`,
		"1/99 * * * *":                   `period "1/99 * * * *": minute: "1/99": the step is larger than the field (0-59)`,
		"/5 * * * *":                     `period "/5 * * * *": minute: "" is not allowed here (allowed: 0-59)`,
		"* * 30 2 *":                     `period "* * 30 2 *" never comes: no month that it names has such a day of month`,
		"* * 31 4,6,9,11 *":              `period "* * 31 4,6,9,11 *" never comes: no month that it names has such a day of month`,
		"* * 30-31 feb *":                `period "* * 30-31 feb *" never comes: no month that it names has such a day of month`,
	} {
		t.Run(spec, func(t *testing.T) {
			_, err := ParsePeriod(spec, "UTC")
			require.EqualError(t, err, want)
		})
	}
}

func TestUnknownTimezones(t *testing.T) {
	for _, name := range []string{"Europe/Berln", "CEST", "../../etc/passwd", "/etc/localtime", "Europe", "Berlin", " UTC", "+01:00"} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePeriod("* * * * *", name)
			require.ErrorContains(t, err, `is not known: it must be a name of the IANA time zone database such as "Europe/Berlin"`)
		})
	}
}

func TestTheLastPolicyThatMatchesWins(t *testing.T) {
	weekdays, evenings := period(t, "* 8-18 * * mon-fri", "UTC"), period(t, "* 17-22 * * *", "UTC")
	s := Schedule{
		Default: Values{IdleCount: 1, IdleTime: time.Hour},
		Policies: []Policy{
			{Name: "idle_policy[0]", Periods: []Period{weekdays}, Values: Values{IdleCount: 10}},
			{Name: "idle_policy[1]", Periods: []Period{period(t, "0 0 1 1 *", "UTC"), evenings}, Values: Values{IdleCount: 5}},
			{Name: "idle_policy[2]", Values: Values{IdleCount: 99}},
		},
	}
	for text, want := range map[string]Decision{
		"2026-01-05 07:59:59": {Values: Values{IdleCount: 1, IdleTime: time.Hour}, Policy: "default", Period: ""},
		"2026-01-05 08:00:00": {Values: Values{IdleCount: 10}, Policy: "idle_policy[0]", Period: "* 8-18 * * mon-fri"},
		"2026-01-05 17:00:00": {Values: Values{IdleCount: 5}, Policy: "idle_policy[1]", Period: "* 17-22 * * *"},
		"2026-01-10 12:00:00": {Values: Values{IdleCount: 1, IdleTime: time.Hour}, Policy: "default", Period: ""},
		"2026-01-01 00:00:00": {Values: Values{IdleCount: 5}, Policy: "idle_policy[1]", Period: "0 0 1 1 *"},
	} {
		require.Equal(t, want, s.At(at(t, text+" +0000")), text)
	}
}

func TestALargerCountHoldsAheadOfItsPeriod(t *testing.T) {
	s := Schedule{
		Lead:    10 * time.Minute,
		Default: Values{IdleCount: 1, IdleTime: time.Hour, ScaleFactor: 0.5},
		Policies: []Policy{
			{Name: "day", Periods: []Period{period(t, "* 8-17 * * *", "UTC")}, Values: Values{IdleCount: 10, IdleTime: 30 * time.Minute, ScaleFactor: 2}},
			{Name: "lunch", Periods: []Period{period(t, "* 12 * * *", "UTC")}, Values: Values{IdleCount: 3, IdleTime: 0}},
			{Name: "blip", Periods: []Period{period(t, "5 20 * * *", "UTC")}, Values: Values{IdleCount: 4, IdleTime: time.Minute}},
		},
	}
	table, day, lunch := s.Default, s.Policies[0].Values, s.Policies[1].Values
	begins := at(t, "2026-01-05 08:00:00 +0000").UTC()
	for text, want := range map[string]Decision{
		"07:49:59.999999999": {Values: table, Policy: "default"},
		"07:50:00":           {Values: Values{IdleCount: 10, IdleTime: time.Hour, ScaleFactor: 0.5}, Policy: "default", Ahead: "day", Begins: begins},
		"07:59:59":           {Values: Values{IdleCount: 10, IdleTime: time.Hour, ScaleFactor: 0.5}, Policy: "default", Ahead: "day", Begins: begins},
		"08:00:00":           {Values: day, Policy: "day", Period: "* 8-17 * * *"},
		"11:55:00":           {Values: day, Policy: "day", Period: "* 8-17 * * *"}, // a fall isn't early
		"12:00:00":           {Values: lunch, Policy: "lunch", Period: "* 12 * * *"},
		"12:50:00": {Values: Values{IdleCount: 10, IdleTime: 0}, Policy: "lunch", Period: "* 12 * * *", Ahead: "day",
			Begins: begins.Add(5 * time.Hour)}, // no idle time is the longest
		"17:59:00": {Values: day, Policy: "day", Period: "* 8-17 * * *"},
		"18:00:00": {Values: table, Policy: "default"},
		"20:04:00": {Values: Values{IdleCount: 4, IdleTime: time.Hour, ScaleFactor: 0.5}, Policy: "default", Ahead: "blip",
			Begins: at(t, "2026-01-05 20:05:00 +0000").UTC()},
	} {
		now := at(t, "2026-01-05 "+text+" +0000")
		require.Equal(t, want, s.At(now), text)
		require.Equal(t, want, s.At(now.In(time.FixedZone("elsewhere", 7200))), "a decision is the same wherever it is asked for")
	}

	var changes []string
	for now := at(t, "2026-01-05 00:00:00 +0000"); ; {
		next, ok := s.NextChange(now)
		require.True(t, ok)
		if next.UTC().Day() != 5 {
			break
		}
		changes = append(changes, next.UTC().Format("15:04:05"))
		now = next
	}
	require.Equal(t, []string{"07:50:00", "08:00:00", "12:00:00", "12:50:00", "13:00:00", "18:00:00", "19:55:00", "20:05:00", "20:06:00"}, changes)
}

func TestWhatIsMoreThanOneEdgeAhead(t *testing.T) {
	s := schedule(t, "UTC", "* 8 * * *", "* 9 * * *", "* 10 * * *") // 1, 2 and 3
	s.Lead = 90 * time.Minute
	s.Default.IdleTime = time.Minute
	for i, idleTime := range []time.Duration{time.Hour, 2 * time.Minute, time.Second} {
		s.Policies[i].Values.IdleTime = idleTime
	}
	d := s.At(at(t, "2026-01-05 07:30:00 +0000"))
	require.Equal(t, 2, d.IdleCount, "the lead reaches to nine")
	require.Equal(t, "* 9 * * *", d.Ahead)
	require.Equal(t, 2*time.Minute, d.IdleTime, "of what holds now and what the count is for")
	next, ok := s.NextChange(at(t, "2026-01-05 08:00:00 +0000"))
	require.True(t, ok)
	require.Equal(t, at(t, "2026-01-05 08:30:00 +0000").UTC(), next.UTC(), "an hour and a half before ten")
}

func TestTheNameOfWhatIsInForce(t *testing.T) {
	require.Equal(t, "default", Decision{Policy: DefaultPolicy}.InForce())
	require.Equal(t, "idle_policy[1] (ahead)", Decision{Policy: DefaultPolicy, Ahead: "idle_policy[1]"}.InForce())
}
