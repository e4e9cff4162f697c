package config

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
)

func TestConvertMachine(t *testing.T) {
	files := readCase(t, "convert")
	text, notes, err := convertMachine(files)
	require.NoError(t, err)
	compareGolden(t, "testdata/convert.golden", text)
	var lines strings.Builder
	for _, n := range notes {
		lines.WriteString(n.String() + "\n")
	}
	compareGolden(t, "testdata/convert.notes", lines.String())
	require.NotContains(t, text+lines.String(), "glrt-")

	again, _, err := convertMachine(files)
	require.NoError(t, err)
	require.Equal(t, text, again, "the same each time")
}

// TestWhatWasConvertedLoads: beside the file that it came from, whose executor has been changed, and without any warning
// but for the helper image, and for what a period without a timezone means.
func TestWhatWasConvertedLoads(t *testing.T) {
	first := readCase(t, "convert")[0]
	second, _, err := convertMachine([]file{first})
	require.NoError(t, err)
	changed := strings.ReplaceAll(string(first.data), "docker+machine", "custom")
	changed = strings.ReplaceAll(changed, "  token = \"glrt-offpeak", "  name = \"off peak\"\n  token = \"glrt-offpeak")
	second = strings.ReplaceAll(second, `name = ""`, `name = "off peak"`)
	second = strings.ReplaceAll(second, "  [runners.kubernetes]\n    idle_count = 1", "  [runners.kubernetes]\n    image = \"a\"\n    idle_count = 1")
	cfg, err := load([]file{{"config.toml", []byte(changed)}, {"converted.toml", []byte(second)}}, environment)
	require.NoError(t, err, second)
	for _, w := range cfg.Warnings {
		require.Regexp(t, `\.(helper_image|timezone)$`, w.Path, w)
	}
	for _, r := range cfg.Runners[:3] {
		require.True(t, r.Managed())
		require.NotEmpty(t, r.Kubernetes.IdlePolicies)
	}
	require.Equal(t, []string{"debian:13"}, cfg.Runners[2].IdleImages())
}

// TestConvertedCountsAreThoseOfMachines compares how many were idle with how many will be, whatever is in use.
func TestConvertedCountsAreThoseOfMachines(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	factors := []float64{0, 0.1, 0.5, 1, 1.5, 3}
	for range 20_000 {
		m := machine{
			IdleCount: random.IntN(12), IdleCountMin: random.IntN(6), IdleScaleFactor: factors[random.IntN(len(factors))], IdleTime: 1800,
		}
		inUse := random.IntN(30)
		// Machines are made until there are IdleCount, or enough for those in use and at least IdleCountMin, or one.
		machines := 0
		for machines < m.IdleCount {
			least := max(m.IdleCountMin, 1)
			if m.IdleScaleFactor > 0 && machines >= least && machines >= int(float64(inUse)*m.IdleScaleFactor) {
				break
			}
			machines++
		}
		c := &converter{entry: &entry{sources: map[string]source{}}}
		v := c.values("", true, m)
		pods := v.IdleCount
		if *v.ScaleFactor > 0 {
			wanted := int(float64(inUse) * *v.ScaleFactor)
			if float64(wanted) < float64(inUse)**v.ScaleFactor {
				wanted++
			}
			require.Positive(t, *v.ScaleFactorLimit, "0 would be no limit at all")
			pods = max(pods, min(wanted, *v.ScaleFactorLimit))
		}
		require.Contains(t, []int{machines, machines + 1}, pods, "%+v in use %d", m, inUse)
		require.LessOrEqual(t, pods, m.IdleCount)
		if m.IdleScaleFactor == 0 || float64(inUse)*m.IdleScaleFactor == float64(int(float64(inUse)*m.IdleScaleFactor)) {
			require.Equal(t, machines, pods, "%+v in use %d", m, inUse)
		}
	}
}

func TestFiveFields(t *testing.T) {
	for spec, want := range map[string]string{ // "!" begins an error, "~" what has a note
		"* * 8-17 * * mon-fri *":   "* 8-17 * * mon-fri",
		"*/1 * 8-17 * * mon-fri *": "* 8-17 * * mon-fri",
		"0-59 */5 8-17 * * 1-5 ?":  "*/5 8-17 * * 1-5",
		"? ? 8 ? JAN Sunday *":     "* 8 * jan sun",
		"* * 8-17 * * mon-fri":     "!for the year mon-fri", // six fields: the first is the minute
		"0 * 8-17 * * mon-fri *":   "~* 8-17 * * mon-fri",
		"* 8-17 * * mon-fri":       "~* 8-17 * * mon-fri",
		"* 8-17 * * mon-fri *":     "~* 8-17 * * mon-fri",
		"* 8-17 * * mon-fri 2020":  "!for the year 2020",
		"* * * L * * *":            "!no L, W and #",
		"* * * 15W * * *":          "!no L, W and #",
		"* * * * * mon#2 *":        "!no L, W and #",
		"* * * * july wed *":       "* * * jul wed",
		"* * 0-8,20-24 * * * *":    "!24",
		"@daily":                   "!names a moment",
		"* *":                      "!has 2 fields",
		"* * * * * * * *":          "!has 8 fields",
		"":                         "!has 0 fields",
	} {
		period, note, err := fiveFields(spec, "UTC")
		if strings.HasPrefix(want, "!") {
			require.ErrorContains(t, err, want[1:], spec)
			continue
		}
		require.NoError(t, err, spec)
		require.Equal(t, strings.TrimPrefix(want, "~"), period, spec)
		require.Equal(t, strings.HasPrefix(want, "~"), note != "", spec)
	}
}

func TestWhatCannotBeConverted(t *testing.T) {
	_, _, err := convertMachine([]file{{"a.toml", []byte("[[runners]]\nexecutor = \"docker\"\n")}})
	require.EqualError(t, err, "a.toml: has no [runners.machine] table, so there is nothing to convert")

	_, _, err = convertMachine([]file{{"a.toml", []byte("[[runners]]\n[runners.machine]\nIdleCount = -1\nIdleTime = \"30m\"\nIdleScaleFactor = nan\n" +
		"[[runners.machine.autoscaling]]\nIdleCountMin = 1000000\nPeriods = \"x\"\n")}})
	require.Equal(t, []string{
		"a.toml: runners[0].machine.IdleCount: -1 is not a number from 0 to 100000",
		"a.toml: runners[0].machine.IdleScaleFactor: NaN is not a number from 0 to 1000",
		`a.toml: runners[0].machine.IdleTime: must be a whole number, it is the text "30m"`,
		"a.toml: runners[0].machine.autoscaling[0].IdleCountMin: 1000000 is not a number from 0 to 100000",
		`a.toml: runners[0].machine.autoscaling[0].Periods: must be a list in brackets, it is the text "x"`,
	}, strings.Split(err.Error(), "\n"))

	_, _, err = ConvertMachine([]string{"testdata/there-is-none.toml"})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = convertMachine([]file{{"a.toml", []byte("x = \n")}})
	require.Error(t, err)
}

// FuzzConvertMachine: whatever is in a file, it is refused with problems, or what is written can be read again.
func FuzzConvertMachine(f *testing.F) {
	data, err := os.ReadFile("testdata/convert.toml")
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte("[[runners]]\nname = \"\\u0000\\\"\"\n[runners.machine]\nOffPeakPeriods = [\"\"]\n"))
	f.Add([]byte("[[runners]]\nname = 3\nmachine = []\n[[runners]]\n[runners.Machine]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, _, err := convertMachine([]file{{"a.toml", data}})
		if err != nil {
			require.NotEmpty(t, Problems(err))
			return
		}
		var back convertedFile
		_, err = toml.Decode(text, &back)
		require.NoError(t, err, text)
	})
}
