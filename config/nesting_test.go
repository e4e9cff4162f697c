package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTooDeep(t *testing.T) {
	times := strings.Repeat
	for sentence, c := range map[string]struct {
		text         string
		line, column int
	}{
		"an empty file":                          {"", 0, 0},
		"as deep as may be":                      {"x = " + times("[", 32) + times("]", 32), 0, 0},
		"one deeper":                             {"y = 1\nx = " + times("[", 33) + times("]", 33), 2, 37},
		"tables in line":                         {"x = " + times("{a=", 33) + "1" + times("}", 33), 1, 101},
		"a dotted key":                           {times("a.", 33) + "a = 1", 1, 66},
		"the header of a table":                  {"[" + times("a.", 33) + "a]", 1, 65},
		"dotted keys in tables in line":          {"x = " + times("{a.a.a=", 11) + "1" + times("}", 11), 1, 79},
		"many that are next to each other":       {times("x = [[[1.5, 2.5]], [{a.b = 1, a.c = 2}]]\n[[a.b]]\n", 100), 0, 0},
		"a long list of numbers":                 {"x = [\n" + times("1.5,\n", 100) + "]", 0, 0},
		"brackets in texts":                      {`x = "` + times("[", 100) + `" # ` + times("[", 100) + "\ny = '" + times("{", 100) + "'", 0, 0},
		"a quote in a text":                      {`x = "\"` + times("[", 100) + `"`, 0, 0},
		"a backslash in a literal text":          {`x = 'a\' # ` + times("[", 100), 0, 0},
		"texts of many lines":                    {`x = """` + times("[\n\"\"", 100) + `x"""` + "\ny = '''" + times("'[\n", 100) + "'''", 0, 0},
		"an escaped quote in one":                {`x = """\"""` + times("[", 100) + `"""`, 0, 0},
		"brackets after an empty text":           {`x = ""` + times("[", 33), 1, 39},
		"brackets after a text that doesn't end": {"x = \"a\ny = " + times("[", 33), 2, 37},
		"a text that doesn't end with the file":  {`x = """` + times("[", 100), 0, 0},
		"too many that close":                    {times("]", 100) + times("[", 33), 1, 133},
	} {
		t.Run(sentence, func(t *testing.T) {
			line, column := tooDeep([]byte(c.text))
			require.Equal(t, []int{c.line, c.column}, []int{line, column})
		})
	}
}

// What used to keep a process busy for minutes, and a little more of it for hours, is refused before the parser sees it.
func TestAFileThatNestsTooDeepIsRefused(t *testing.T) {
	text := custom + "x = " + strings.Repeat("{a=", 100_000) + "1" + strings.Repeat("}", 100_000)
	_, err := load([]file{{"config.toml", []byte(text)}}, environment)
	require.EqualError(t, err, "config.toml:7:101: tables and lists are more than 32 deep in each other here")
}

func TestNoFileOfOursNestsTooDeep(t *testing.T) {
	for _, pattern := range []string{"testdata/*.toml", "../examples/*.toml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			line, _ := tooDeep(data)
			require.Zero(t, line, path)
		}
	}
}
