package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests mean the same zones everywhere

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
)

func policyOf(t *testing.T, name, timezone string, specs ...string) cron.Policy {
	t.Helper()
	p := cron.Policy{Name: name, Values: cron.Values{IdleCount: 3}}
	for _, spec := range specs {
		period, err := cron.ParsePeriod(spec, timezone)
		require.NoError(t, err)
		p.Periods = append(p.Periods, period)
	}
	return p
}

func TestNotesOnClocks(t *testing.T) {
	for sentence, c := range map[string]struct {
		timezone, spec, from string
		want                 string // "" = none
	}{
		"a night in autumn is longer": {
			"Europe/Berlin", "* 0-5 * * *", "2026-10-20",
			`the clocks of Europe/Berlin go back by 1h on Sun 2026-10-25 03:00 CEST: the period "* 0-5 * * *" of p is up to 1h longer on that day`,
		},
		"a night in spring is shorter": {
			"Europe/Berlin", "* 0-5 * * *", "2026-03-25",
			`the clocks of Europe/Berlin go forward by 1h on Sun 2026-03-29 02:00 CET: the period "* 0-5 * * *" of p is up to 1h shorter on that day`,
		},
		"an hour that doesn't happen": {
			"Europe/Berlin", "* 2 * * *", "2026-03-25",
			`the clocks of Europe/Berlin go forward by 1h on Sun 2026-03-29 02:00 CET: the period "* 2 * * *" of p doesn't happen on that day`,
		},
		"half an hour that happens twice": {
			"Europe/Berlin", "0-29 2 * * *", "2026-10-20",
			`the clocks of Europe/Berlin go back by 1h on Sun 2026-10-25 03:00 CEST: the period "0-29 2 * * *" of p happens twice on that day`,
		},
		"clocks that are put by half an hour": {
			"Australia/Lord_Howe", "* 1-3 * * *", "2026-04-01",
			`the clocks of Australia/Lord_Howe go back by 30m on Sun 2026-04-05 02:00 +11: the period "* 1-3 * * *" of p is up to 30m longer on that day`,
		},
		"New York": {
			"America/New_York", "* 2 * * sun", "2026-03-06",
			`the clocks of America/New_York go forward by 1h on Sun 2026-03-08 02:00 EST: the period "* 2 * * sun" of p doesn't happen on that day`,
		},
		"a period of the day sleeps through it":          {"Europe/Berlin", "* 8-18 * * *", "2026-10-20", ""},
		"a period of another day of the week does, too":  {"Europe/Berlin", "* 0-5 * * mon-fri", "2026-10-20", ""},
		"a week in which no clock is put":                {"Europe/Berlin", "* 0-5 * * *", "2026-06-01", ""},
		"a zone whose clocks are left alone":             {"Asia/Kolkata", "* 0-5 * * *", "2026-03-25", ""},
		"a period that ends where the clocks are put on": {"Europe/Berlin", "* 0-1 * * *", "2026-03-25", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			from, err := time.Parse(time.DateOnly, c.from)
			require.NoError(t, err)
			notes := clockNotes(policyOf(t, "p", c.timezone, c.spec), from, from.AddDate(0, 0, 7))
			if c.want == "" {
				require.Empty(t, notes)
				return
			}
			require.Equal(t, []note{{noteClock, "p", c.want}}, notes)
		})
	}
}

func TestNotesOnPoliciesThatDontHold(t *testing.T) {
	monday := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		policies []cron.Policy
		want     []note
	}{
		"two that never meet": {[]cron.Policy{policyOf(t, "a", "UTC", "* 8 * * *"), policyOf(t, "b", "UTC", "* 9 * * *")}, nil},
		"an hour a day": {
			[]cron.Policy{policyOf(t, "a", "UTC", "* 8-18 * * mon-fri"), policyOf(t, "b", "UTC", "* 12 * * *")},
			[]note{{noteHidden, "a", "b, which comes later in the file, holds instead of a: Mon 2026-03-02 12:00 UTC to Mon 2026-03-02 13:00 UTC, and 4 more"}},
		},
		"all the time": {
			[]cron.Policy{policyOf(t, "a", "UTC", "* 12 * * *"), policyOf(t, "b", "UTC", "* 8-18 * * *")},
			[]note{{noteHidden, "a", "b, which comes later in the file, holds instead of a all the time"}},
		},
		"one of another month": {
			[]cron.Policy{policyOf(t, "a", "UTC", "* * 24 12 *")},
			[]note{{noteAbsent, "a", "a doesn't come in this time; it comes next on Thu 2026-12-24 00:00 UTC"}},
		},
		"one that begins where we end": {
			[]cron.Policy{policyOf(t, "a", "UTC", "* * 9 3 *")}, []note{{noteAbsent, "a", "a doesn't come in this time; it begins at its end"}},
		},
		"one without periods": {[]cron.Policy{{Name: "a"}}, []note{{noteAbsent, "a", "a doesn't come in this time"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.want, notesOf(cron.Schedule{Policies: c.policies}, monday, monday.AddDate(0, 0, 7), time.UTC))
		})
	}
}

func TestSlotsAreWhatTheScheduleSays(t *testing.T) {
	s := cron.Schedule{Default: cron.Values{IdleCount: 1}, Policies: []cron.Policy{policyOf(t, "p", "UTC", "* 8 * * *")}, Lead: 10 * time.Minute}
	from := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	var got []string
	for _, s := range slotsOf(s, from, from.AddDate(0, 0, 1)) {
		got = append(got, s.From.Format("15:04")+" "+s.Policy+" "+string(rune('0'+s.IdleCount))+" "+s.Ahead)
	}
	require.Equal(t, []string{"00:00 default 1 ", "07:50 default 3 p", "08:00 p 3 ", "09:00 default 1 "}, got)
	busy := cron.Schedule{Policies: []cron.Policy{policyOf(t, "p", "UTC", "*/2 * * * *")}}
	require.Len(t, slotsOf(busy, from, from.AddDate(1, 0, 0)), mostSlots)
}

// TestManyRunnersMakeAShortTable: a hundred runners of three images each, with office hours, are what a platform team has.
func TestManyRunnersMakeAShortTable(t *testing.T) {
	const runners = 100
	var file strings.Builder
	for i := range runners {
		file.WriteString(strings.ReplaceAll(`
[[runners]]
  name = "ci-NN"
  url = "https://gitlab.example.com"
  token = "glrt-NNabcdefghijklmnopqr"
  executor = "custom"
  [runners.kubernetes]
    namespace = "ci"
    helper_image = "r/helper:1"
    idle_entrypoint_image = "r/entrypoint:1"
    idle_images = ["a:1", "b:1", "c:1"]
    [[runners.kubernetes.idle_policy]]
      periods = ["* 8-18 * * mon-fri"]
      timezone = "Europe/Berlin"
      idle_count = 10
`, "NN", string([]byte{byte('0' + i/10), byte('0' + i%10)})))
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	require.Equal(t, ExitOK, Main(t.Context(), []string{"schedule", "-c", path, "--at", "2026-03-02T06:00:00+01:00"}, streams), errOut)
	blocks := strings.Split(out.String(), "\n\n")
	require.Len(t, blocks, runners)
	require.Equal(t, `ci-00 (00abcdefg) in namespace ci: a:1, b:1, c:1
  FROM                       POLICY           IDLE   IDLE TIME   SCALE FACTOR   PERIOD
  Mon 2026-03-02 06:00 CET   default          0      30m         -              -
  Mon 2026-03-02 08:00 CET   idle_policy[0]   10     30m         -              * 8-18 * * mon-fri
  Mon 2026-03-02 19:00 CET   default          0      30m         -              -
  Tue 2026-03-03 to Fri 2026-03-06: as on Mon`, blocks[0])
}

func TestTimetablesOfARunner(t *testing.T) {
	cfg, err := config.Load([]string{filepath.Join("testdata", "config", "schedule.toml")})
	require.NoError(t, err)
	from := time.Date(2026, 10, 23, 12, 0, 0, 0, time.UTC)
	list := scheduleList{From: from, Until: from.AddDate(0, 0, 7)}
	for _, r := range cfg.Runners {
		tables, err := timetables(r, list.From, list.Until)
		require.NoError(t, err)
		list.Schedules = append(list.Schedules, tables...)
	}
	var b strings.Builder
	require.NoError(t, writeTimetables(&b, list, true))
	golden(t, "schedule.txt", b.String())
	b.Reset()
	require.NoError(t, writeJSON(&b, list.Schedules[len(list.Schedules)-1]))
	golden(t, "schedule.json", b.String())
}
