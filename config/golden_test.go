package config

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// environment stands for the system's in tests.
func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"GITLAB_URL":   "https://gitlab.example.com",
		"RUNNER_TOKEN": "glrt-fromtheenvironment",
	}[name]
	return value, ok
}

// TestMessages loads every file of testdata and compares what a user would read, to the letter, with the .txt beside it:
// the problems of an invalid-*.toml, the warnings of a valid-*.toml, and both of a check-*.toml, as Check finds them in a build
// that is no release. Further files of one case are named *.2.toml, *.3.toml.
// `go test ./config -run TestMessages -update` writes the .txt anew.
func TestMessages(t *testing.T) {
	first, err := filepath.Glob("testdata/*valid-*.toml")
	require.NoError(t, err)
	checked, err := filepath.Glob("testdata/check-*.toml")
	require.NoError(t, err)
	require.NotEmpty(t, checked)
	first = append(first, checked...)
	first = slices.DeleteFunc(first, func(path string) bool { return strings.Count(filepath.Base(path), ".") > 1 })
	require.Greater(t, len(first), 20)
	for _, path := range first {
		name := strings.TrimSuffix(filepath.Base(path), ".toml")
		t.Run(name, func(t *testing.T) {
			cfg, err := load(readCase(t, name), environment)
			var got strings.Builder
			if strings.HasPrefix(name, "check-") {
				got.WriteString(checkedCase(t, name))
			} else if strings.HasPrefix(name, "invalid-") {
				require.Error(t, err)
				require.Nil(t, cfg)
				require.NotEmpty(t, Problems(err))
				got.WriteString(err.Error() + "\n")
			} else {
				require.NoError(t, err)
				for _, w := range cfg.Warnings {
					got.WriteString(w.String() + "\n")
				}
			}
			require.NotContains(t, got.String(), "fakefakef", "a token is shown")
			compareGolden(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// checkedCase is what `idlecount validate` says of a case.
func checkedCase(t *testing.T, name string) string {
	cfg, warnings, err := inspect(readCase(t, name), environment, false)
	require.Equal(t, err == nil, cfg != nil)
	var got strings.Builder
	for _, w := range warnings {
		got.WriteString("warning: " + w.String() + "\n")
	}
	for _, p := range Problems(err) {
		got.WriteString("error: " + p.Error() + "\n")
	}
	return got.String()
}

// readCase reads the files of one case; messages name them by their base.
func readCase(t *testing.T, name string) []file {
	var files []file
	for _, suffix := range []string{".toml", ".2.toml", ".3.toml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+suffix))
		if suffix != ".toml" && os.IsNotExist(err) {
			break
		}
		require.NoError(t, err)
		files = append(files, file{path: name + suffix, data: data})
	}
	return files
}

// loadCase loads a case that is valid.
func loadCase(t *testing.T, name string) *Config {
	cfg, err := load(readCase(t, name), environment)
	require.NoError(t, err)
	return cfg
}

func compareGolden(t *testing.T, path, got string) {
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the expected messages anew")
	os.Exit(m.Run())
}
