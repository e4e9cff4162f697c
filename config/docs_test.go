package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
)

// documented reads the keys in the first column of the first table after a line of docs/configuration.md, and the cells
// that go with each.
func documented(t *testing.T, after string) (keys []string, cells map[string][]string) {
	t.Helper()
	data, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(data), "\n"+after+"\n")
	require.True(t, found, "docs/configuration.md has no line %q", after)
	cells = map[string][]string{}
	inTable := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			if inTable {
				break
			}
			continue
		}
		inTable = true
		row := strings.Split(strings.Trim(line, "| \n"), " | ")
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[0], -1) {
			keys = append(keys, match[1])
			cells[match[1]] = row
		}
	}
	require.NotEmpty(t, keys)
	return keys, cells
}

func TestTheDocumentationKnowsEveryKey(t *testing.T) {
	own, cells := documented(t, "## idlecount's keys")
	require.ElementsMatch(t, ownKeys(), own)

	policy, _ := documented(t, "### idle_policy")
	require.ElementsMatch(t, tags(reflect.TypeFor[IdlePolicy]()), policy)

	image, _ := documented(t, "### idle_image")
	require.ElementsMatch(t, tags(reflect.TypeFor[IdleImage]()), image)

	autoscaler, _ := documented(t, "## GitLab's autoscaler table")
	require.ElementsMatch(t, append(tags(reflect.TypeFor[AutoscalerPolicy]()),
		slices.DeleteFunc(tags(reflect.TypeFor[Autoscaler]()), func(key string) bool { return key == "policy" })...), autoscaler)

	runner, _ := documented(t, "In `[[runners]]`:")
	require.ElementsMatch(t, tags(reflect.TypeFor[Runner]()), runner)

	kubernetes, more := documented(t, "In `[runners.kubernetes]`:\n\n| keys | remarks |")
	require.ElementsMatch(t, slices.DeleteFunc(tags(reflect.TypeFor[Kubernetes]()), func(key string) bool {
		return slices.Contains(ownKeys(), key)
	}), kubernetes)

	defaults := newRunner("")
	for key, want := range map[string]Duration{
		"idle_time": defaults.Kubernetes.IdleTime, "idle_abandon_time": defaults.Kubernetes.IdleAbandonTime,
	} {
		var written Duration
		require.NoError(t, written.UnmarshalTOML(strings.Trim(cells[key][2], "`\"")))
		require.Equal(t, want, written, key)
	}
	require.Contains(t, cells["idle_entrypoint_image"][2], entrypointRepository+":")
	require.Contains(t, more["poll_timeout"][1], "180")
	require.Equal(t, 180, DefaultPollTimeout)
}

func TestTheDocumentationKnowsWhatIsNotHonoured(t *testing.T) {
	keys, _ := documented(t, "## GitLab's keys that are not honoured yet")
	used := map[string]bool{}
	for _, u := range unhonouredKeys() {
		matching := slices.IndexFunc(keys, func(key string) bool {
			suffix, isPattern := strings.CutPrefix(key, "…")
			return key == u.key || isPattern && strings.HasSuffix(u.key, suffix)
		})
		require.GreaterOrEqual(t, matching, 0, "docs/configuration.md doesn't say that %s is not honoured", u.key)
		used[keys[matching]] = true
	}
	for _, key := range keys {
		require.True(t, used[key], "docs/configuration.md says that %s is not honoured, nothing warns of it", key)
	}
}

// TestTheExamplesAreValid: every file of examples loads, alone or, for idle.toml, over its counterpart, without a warning
// and without a key that neither GitLab nor idlecount has.
func TestTheExamplesAreValid(t *testing.T) {
	t.Setenv("RUNNER_TOKEN", "glrt-fakefakefake")
	paths, err := filepath.Glob("../examples/*.toml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 3)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			files := []string{path}
			if filepath.Base(path) == "idle.toml" {
				files = []string{"../examples/runner.toml", path}
			}
			read, err := readAll(files)
			require.NoError(t, err)
			cfg, warnings, err := inspect(read, os.LookupEnv, true)
			require.NoError(t, err)
			require.Empty(t, warnings)
			require.NotEmpty(t, cfg.Runners)
			onlyKnownKeys(t, path)
		})
	}
}

func onlyKnownKeys(t *testing.T, path string) {
	var file struct{ Runners []map[string]any }
	_, err := toml.DecodeFile(path, &file)
	require.NoError(t, err)
	var check func(path string, keys map[string]any, known keyTree)
	check = func(path string, keys map[string]any, known keyTree) {
		for _, key := range sortedKeys(keys) {
			inner, ok := known[strings.ToLower(key)]
			require.True(t, ok, "%s.%s", path, key)
			if inner == nil {
				continue
			}
			tables, _ := tablesOf(keys[key])
			if table, ok := keys[key].(map[string]any); ok {
				tables = append(tables, table)
			}
			for _, table := range tables {
				check(path+"."+key, table, inner)
			}
		}
	}
	for _, runner := range file.Runners {
		check("runners", runner, runnerTree())
	}
}

func TestTheTwoFilesOfTheExampleMeanTheSameAsTheOne(t *testing.T) {
	t.Setenv("RUNNER_TOKEN", "glrt-fakefakefake")
	whole, err := Load([]string{"../examples/config.toml"})
	require.NoError(t, err)
	parts, err := Load([]string{"../examples/runner.toml", "../examples/idle.toml"})
	require.NoError(t, err)
	require.Equal(t, whole, parts)
	first, err := Load([]string{"../examples/runner.toml"})
	require.NoError(t, err)
	require.False(t, first.Runners[0].HasIdle, "gitlab-runner lint would refuse a key of idlecount")
}
