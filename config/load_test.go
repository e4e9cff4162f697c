package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/cron"
)

// one loads a single file from its text.
func one(t *testing.T, text string) *Config {
	cfg, err := load([]file{{"config.toml", []byte(text)}}, environment)
	require.NoError(t, err)
	return cfg
}

// custom begins a runner that idlecount manages.
const custom = `[[runners]]
name = "ci"
token = "glrt-fakefakefake"
executor = "custom"
[runners.kubernetes]
helper_image = "helper:1"
`

func TestDefaults(t *testing.T) {
	cfg := one(t, custom)
	require.Empty(t, cfg.Warnings)
	require.Equal(t, []Runner{{
		Path: "runners[0]", Name: "ci", Token: "glrt-fakefakefake", Executor: "custom",
		Shell: "bash", BuildsDir: "/builds", CacheDir: "/cache",
		HasKubernetes: true,
		Kubernetes: Kubernetes{
			Namespace: "default", HelperImage: "helper:1", PollTimeout: 180,
			IdleTime: Duration{30 * time.Minute}, IdleStrategy: "pods", IdleAbandonTime: Duration{10 * time.Minute},
			IdleEntrypointImage: "ghcr.io/idlecount/entrypoint:dev",
		},
	}}, cfg.Runners)
}

func TestEveryKeyIsRead(t *testing.T) {
	r := loadCase(t, "valid-everything").Runners[0]
	k := r.Kubernetes
	// A key that isn't read leaves a zero behind. These are the ones whose value in the file is a zero.
	zero := notSet(t, r)
	require.ElementsMatch(t, []string{
		"Kubernetes.Privileged=false", "Kubernetes.AllowPrivilegeEscalation=false", "Kubernetes.CleanupGracePeriodSeconds=0",
		"Kubernetes.BuildContainerSecurityContext.RunAsUser=0", "Kubernetes.BuildContainerSecurityContext.RunAsGroup=0",
		"Kubernetes.BuildContainerSecurityContext.RunAsNonRoot=false",
	}, zero)

	nowhere := k.Affinity.PodAffinity.Required[0]
	require.Nil(t, nowhere.LabelSelector, "no selector is another thing than one that selects all")
	require.Equal(t, &LabelSelector{}, nowhere.NamespaceSelector)
	require.Equal(t, &LabelSelector{
		MatchLabels: map[string]string{"team": "ci"}, MatchExpressions: []Expression{{Key: "team", Operator: "Exists"}},
	}, k.Affinity.PodAntiAffinity.Required[0].LabelSelector)
	require.Equal(t, 50, k.Affinity.NodeAffinity.Preferred[0].Weight)

	require.Equal(t, "abcdefghi", r.ShortToken())
	require.Equal(t, "ci", k.Namespace, "GitLab's keys match in any case")
	require.Equal(t, map[string]string{"kubernetes.io/arch": "amd64"}, k.NodeSelector)
	require.Equal(t, map[string]string{"ci=true": "NoSchedule", "spot": "", "": "NoExecute"}, k.NodeTolerations)
	require.Equal(t, StringOrList{"if-not-present"}, k.PullPolicy)
	require.Equal(t, Duration{time.Hour}, k.IdleTime)
	require.InDelta(t, 1.0, k.ScaleFactor, 0)
	require.Equal(t, []string{"A"}, k.BuildContainerSecurityContext.Capabilities.Add)
	require.Equal(t, Profile{Type: "Localhost", LocalhostProfile: "p"}, k.PodSecurityContext.AppArmorProfile)
	require.Equal(t, []Service{{
		Name: "postgres:17", Alias: "db, sql", Command: []string{"postgres"}, Entrypoint: []string{"/entrypoint.sh"},
		Environment: []string{"A=1", "B=", "C=x=y"},
	}}, k.Services)
	require.Equal(t, []string{"alpine:3.22", "golang:1.26", "registry.example.com/debian"}, r.IdleImages())
	require.Equal(t, Duration{10 * time.Minute}, k.IdleLeadTime)

	// Of idle_image, "" and an empty list are values, and what is absent is nil.
	require.Empty(t, *k.IdleOverrides[0].CPULimit)
	require.Equal(t, IdleImage{Image: "registry.example.com/debian", Services: []Service{}}, k.IdleOverrides[1])
	for field, value := range reflect.ValueOf(k.IdleOverrides[0]).Fields() {
		require.False(t, value.IsZero(), field.Name)
	}
}

func TestLaterFilesAddToEarlierOnes(t *testing.T) {
	cfg := loadCase(t, "valid-merge")
	require.Len(t, cfg.Runners, 2)
	require.False(t, cfg.Runners[0].Managed())
	r := cfg.Runners[1]
	k := r.Kubernetes
	require.Equal(t, "runners[1]", r.Path)
	require.Equal(t, 50, r.Limit, "a key of the later file wins")
	require.Equal(t, "https://gitlab.example.com", r.URL, "a key that it hasn't stays")
	require.Equal(t, "1", k.CPURequest)
	require.Equal(t, "ci", k.Namespace)
	require.Equal(t, map[string]string{"a": "first", "b": "second", "c": "second"}, k.PodLabels, "tables are merged")
	require.Equal(t, int64(1), *k.PodSecurityContext.RunAsUser)
	require.Equal(t, int64(2), *k.PodSecurityContext.RunAsGroup)
	require.Equal(t, int64(2), *k.PodSecurityContext.FSGroup)
	require.Equal(t, []IdlePolicy{{Periods: []string{"* * * * sat,sun"}, Timezone: "Europe/Berlin", IdleCount: new(0)}}, k.IdlePolicies, "lists are replaced")
	require.Equal(t, 0, k.IdleCount, "a zero is a value")
	require.Equal(t, Duration{0}, k.IdleTime)
}

// TestFilesAreNotShared: what one file's list is replaced with must not write into another runner's memory.
func TestFilesAreNotShared(t *testing.T) {
	text := custom + "idle_images = [\"a\", \"b\"]\n" + strings.ReplaceAll(custom, "fakefakefake", "otherother") + "idle_images = [\"c\"]\n"
	text = strings.Replace(text, `name = "ci"`, `name = "first"`, 1)
	second := "[[runners]]\nname = \"first\"\n[runners.kubernetes]\nidle_images = [\"d\"]\n"
	cfg, err := load([]file{{"a", []byte(text)}, {"b", []byte(second)}}, environment)
	require.NoError(t, err)
	require.Equal(t, []string{"d"}, cfg.Runners[0].IdleImages())
	require.Equal(t, []string{"c"}, cfg.Runners[1].IdleImages())
	images := cfg.Runners[1].IdleImages()
	images[0] = "changed"
	require.Equal(t, []string{"c"}, cfg.Runners[1].IdleImages())
}

func TestWhatIsManaged(t *testing.T) {
	for when, c := range map[string]struct {
		text string
		want bool
	}{
		"a custom executor with a kubernetes table":         {custom, true},
		"a custom executor of somebody else":                {"[[runners]]\nexecutor = \"custom\"\n", false},
		"GitLab's kubernetes executor":                      {"[[runners]]\nexecutor = \"kubernetes\"\n[runners.kubernetes]\nimage = \"a\"\n", false},
		"GitLab's kubernetes executor with a key of ours":   {strings.Replace(custom, "custom", "kubernetes", 1) + "idle_count = 0\n", true},
		"an executor without a kubernetes table":            {"[[runners]]\nexecutor = \"docker\"\n", false},
		"an empty kubernetes table with an executor custom": {"[[runners]]\nexecutor = \"custom\"\nkubernetes = {}\n", true},
	} {
		t.Run(when, func(t *testing.T) {
			require.Equal(t, c.want, one(t, c.text).Runners[0].Managed())
		})
	}
}

func TestTheEnvironmentIsExpandedInTokenAndURLOnly(t *testing.T) {
	r := loadCase(t, "valid-register").Runners[0]
	require.Equal(t, "https://gitlab.example.com", r.URL)
	require.Equal(t, "glrt-fromtheenvironment", r.Token)
	require.Equal(t, "fromtheen", r.ShortToken())

	k := one(t, custom+"pod_labels = { a = \"$GITLAB_URL\" }\n").Runners[0].Kubernetes
	require.Equal(t, "$GITLAB_URL", k.PodLabels["a"], "it may be a variable of the job")

	_, err := load([]file{{"config.toml", []byte("[[runners]]\ntoken = \"$UNSET\"\nexecutor = \"shell\"\n")}}, environment)
	require.NoError(t, err, "the runner isn't ours")
}

func TestLoadReadsFilesAndTheEnvironment(t *testing.T) {
	t.Setenv("IDLECOUNT_TEST_TOKEN", "glrt-abcdefghijkl")
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(custom, "glrt-fakefakefake", "$IDLECOUNT_TEST_TOKEN", 1)), 0o600))
	cfg, err := Load([]string{path})
	require.NoError(t, err)
	require.Equal(t, "abcdefghi", cfg.Runners[0].ShortToken())
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	missing, large := filepath.Join(dir, "missing.toml"), filepath.Join(dir, "large.toml")
	require.NoError(t, os.WriteFile(large, bytes.Repeat([]byte("# much\n"), maxFile/7+1), 0o600))
	_, err := Load([]string{missing, large, dir})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{
		dir + ": can't be read: is a directory",
		large + ": can't be read: it is larger than 1024 KiB",
		missing + ": can't be read: no such file or directory",
	}, strings.Split(err.Error(), "\n"))
	_, err = Load(nil)
	require.EqualError(t, err, "no config file was given")
}

func TestProblemsOfAllFilesThatDoNotParse(t *testing.T) {
	_, err := load([]file{{"a.toml", []byte("x = \n")}, {"b.toml", []byte("\n[[[")}}, environment)
	require.Equal(t, []Problem{
		{File: "a.toml", Line: 1, Column: 5, Message: "expected value but found '\\n' instead (texts and durations stand in quotes)"},
		{File: "b.toml", Line: 2, Column: 3, Message: "expected '.' or ']' to end table name, but got '[' instead"},
	}, Problems(err))
	require.Empty(t, Problems(errors.New("another error")))
}

func TestARunnerIsShownWithoutItsToken(t *testing.T) {
	r := one(t, custom).Runners[0]
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "runner", r)
	for _, shown := range []string{fmt.Sprint(r), fmt.Sprintf("%v %+v %s", r, r, r), log.String()} {
		require.Contains(t, shown, "fakefakef")
		require.NotContains(t, shown, "fakefakefake")
	}
}

func TestShortTokenIsWhatGitLabRunnerMakesOfIt(t *testing.T) {
	for token, want := range map[string]string{
		"glrt-abcdefghijkl":          "abcdefghi",
		"glrt-t1_abcdefghijkl":       "abcdefghi",
		"glrt-t3_abcdefghijkl.01.xy": "abcdefghi",
		"t2_abcdefghijkl":            "abcdefghi",
		"glrt-t4_abcdefghijkl":       "t4_abcdef",
		"glrtr-abcdefghijkl":         "abcdefghi",
		"GR1348941abcdefghijkl":      "abcdefghi",
		"GRabcdefg1abcdefghijkl":     "GRabcdefg",
		"GR134894":                   "GR134894",
		"abcdefghijkl":               "abcdefghi",
		"glrt-abc":                   "abc",
		"glrt-":                      "",
		"":                           "",
	} {
		r := Runner{Token: token}
		require.Equal(t, want, r.ShortToken(), token)
		require.Equal(t, want, Runner{Token: r.TokenName()}.ShortToken(), "what names a token names it alone")
		require.LessOrEqual(t, len(r.TokenName()), len("GR1348941")+len(want))
	}
}

func TestSchedule(t *testing.T) {
	r := loadCase(t, "valid-everything").Runners[0]
	s, err := r.ScheduleFor("")
	require.NoError(t, err)
	table := cron.Values{IdleCount: 2, IdleTime: time.Hour, ScaleFactor: 1, ScaleFactorLimit: 20}
	require.Equal(t, table, s.Default)
	require.Len(t, s.Policies, 3)
	require.Equal(t, cron.Values{IdleCount: 10, IdleTime: time.Hour, ScaleFactor: 1, ScaleFactorLimit: 20}, s.Policies[0].Values,
		"what a policy doesn't set is inherited")
	require.Equal(t, cron.Values{}, s.Policies[1].Values, "a zero is a value")
	require.Equal(t, cron.Values{IdleCount: 2, IdleTime: 45 * time.Second, ScaleFactor: 1, ScaleFactorLimit: 20}, s.Policies[2].Values)
	for i, p := range s.Policies {
		require.Equal(t, fmt.Sprintf("idle_policy[%d]", i), p.Name)
	}
	require.Equal(t, "Europe/Berlin", s.Policies[0].Periods[1].Timezone())

	decision := s.At(time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC))
	require.Equal(t, "idle_policy[2]", decision.Policy, "a policy without periods is always in force")
	require.Equal(t, "* * * * *", decision.Period)
}

func TestScheduleOfARunnerThatWasNotLoaded(t *testing.T) {
	r := Runner{Path: "runners[3]", Kubernetes: Kubernetes{IdlePolicies: []IdlePolicy{{Periods: []string{"x", "* * * * *", "y"}}}}}
	_, err := r.ScheduleFor("")
	require.ErrorContains(t, err, `runners[3].kubernetes.idle_policy[0].periods[0]: period "x" has one field`)
	require.ErrorContains(t, err, `runners[3].kubernetes.idle_policy[0].periods[2]: period "y" has one field`)
}

func TestALimitThatAllIdlePodsFitInIsNoWarning(t *testing.T) {
	with := func(limit int) string {
		return strings.Replace(custom, "[runners.", fmt.Sprintf("limit = %d\n[runners.", limit), 1) +
			"idle_images = [\"a\", \"b\"]\nidle_count = 1\n[[runners.kubernetes.idle_policy]]\nidle_count = 3\n"
	}
	for limit, warned := range map[int]bool{0: false, 5: true, 6: false, 7: false} {
		require.Equal(t, warned, len(one(t, with(limit)).Warnings) > 0, limit)
	}
}

func TestAPolicyWithNoPeriodsIsNotOneWithout(t *testing.T) {
	r := Runner{Kubernetes: Kubernetes{IdlePolicies: []IdlePolicy{{IdleCount: new(1)}, {Periods: []string{}, IdleCount: new(2)}}}}
	s, err := r.ScheduleFor("")
	require.NoError(t, err)
	require.Equal(t, 1, s.At(time.Unix(0, 0)).IdleCount)
}

func TestIdleImages(t *testing.T) {
	require.Equal(t, []string{"a"}, Runner{Kubernetes: Kubernetes{Image: "a"}}.IdleImages())
	require.Equal(t, []string{"b", "c"}, Runner{Kubernetes: Kubernetes{Image: "a", IdleImages: []string{"b", "c"}}}.IdleImages())
	require.Equal(t, []string{"b", "c:latest", "d"}, Runner{Kubernetes: Kubernetes{
		Image: "a", IdleImages: []string{"b", "c:latest"}, IdleOverrides: []IdleImage{{Image: "c"}, {Image: "b"}, {Image: "d"}},
	}}.IdleImages(), "those with an entry of their own are added")
	require.Equal(t, []string{"a", "d"}, Runner{Kubernetes: Kubernetes{Image: "a", IdleOverrides: []IdleImage{{Image: "d"}}}}.IdleImages())
	require.Empty(t, Runner{}.IdleImages())
}

func TestProblemsAreSortedByPlace(t *testing.T) {
	p := func(file string, line int, path, message string) Problem {
		return Problem{File: file, Line: line, Path: path, Message: message}
	}
	want := []Problem{
		p("a", 0, "runners[2].x", "m"), p("a", 0, "runners[10].x", "m"), p("a", 0, "runners[10].x", "n"), p("a", 0, "runners[10].xy", "m"),
		p("a", 2, "", "m"), p("a", 10, "", "m"), p("b", 0, "", "m"),
	}
	shuffled := []Problem{want[5], want[3], want[0], want[6], want[1], want[0], want[2], want[4]}
	require.Equal(t, want, sorted(shuffled))
}

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{
		{"idle_count", "idle_count"}: 0, {"idel_count", "idle_count"}: 1, {"idle_cuont", "idle_count"}: 1,
		{"", "abc"}: 3, {"kitten", "sitting"}: 3, {"périods", "periods"}: 1,
	} {
		require.Equal(t, want, distance(pair[0], pair[1]), pair)
		require.Equal(t, want, distance(pair[1], pair[0]), pair)
	}
}

// TestKeysOfGitLabAreNeverMistakenForOurs: a stock file must load.
func TestKeysOfGitLabAreNeverMistakenForOurs(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range gitlabKeys() {
		require.Empty(t, unknownInKubernetes(key), key)
		require.False(t, seen[key], "%s is listed twice: as honoured and as not", key)
		seen[key] = true
	}
	for _, key := range ownKeys() {
		require.False(t, seen[key], key)
	}
}

// A job must not fail for a typo that somebody made in another runner's entry.
func TestLoadRunnerMindsItsOwnEntry(t *testing.T) {
	good := custom
	bad := strings.NewReplacer("fakefakefake", "otherother", `"ci"`, `"other"`).Replace(custom) + "idle_count = -1\nidle_tmie = \"1h\"\n"
	files := []file{{"config.toml", []byte(good + bad)}}

	_, err := load(files, environment)
	require.Error(t, err, "the whole file is wrong")

	r, err := loadRunner(files, environment, "ci")
	require.NoError(t, err)
	require.Equal(t, one(t, good).Runners[0], r)

	_, err = loadRunner(files, environment, "other")
	require.Len(t, Problems(err), 2)
	require.ErrorContains(t, err, "runners[1].kubernetes.idle_count")

	_, err = loadRunner(files, environment, "nobody")
	require.ErrorContains(t, err, `no [[runners]] entry with the executor "custom" is called "nobody" (there are: "ci", "other")`)

	_, err = loadRunner([]file{{"config.toml", []byte(good + "[[")}}, environment, "ci")
	require.Error(t, err, "a file that can't be parsed is everybody's problem")
}

// Which runner a job's pod is for decides what the job may do, so it is never guessed, and never asked of the job.
func TestLoadRunnerWithoutAName(t *testing.T) {
	second := strings.NewReplacer("fakefakefake", "otherother", `"ci"`, `"other"`).Replace(custom)
	kubernetes := strings.ReplaceAll(second, `"custom"`, `"kubernetes"`)
	r, err := loadRunner([]file{{"config.toml", []byte(custom + kubernetes)}}, environment, "")
	require.NoError(t, err)
	require.Equal(t, "ci", r.Name, "the only one whose jobs come through a driver")

	_, err = loadRunner([]file{{"config.toml", []byte(custom + second)}}, environment, "")
	require.EqualError(t, err, `2 [[runners]] entries have the executor "custom": "ci", "other"`)
	_, err = loadRunner([]file{{"config.toml", []byte(kubernetes)}}, environment, "")
	require.EqualError(t, err, `no [[runners]] entry has the executor "custom"`)
}
