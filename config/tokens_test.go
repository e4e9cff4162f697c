package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokensThatNamesDontTellApart: a name has letters and digits of the token, and a dash for all else.
func TestTokensThatNamesDontTellApart(t *testing.T) {
	for _, test := range []struct {
		first, second string
		apart         bool
	}{
		{"a_b.cdefg", "a-b-cdefg", false}, {"ABCDEFGHI", "abcdefghi", false}, {"_abcdefgh", "-abcdefgh", false}, {"a-bcdefgh", "ab-cdefgh", true},
	} {
		path := filepath.Join(t.TempDir(), "config.toml")
		text := ""
		for _, token := range []string{test.first, test.second} {
			text += fmt.Sprintf("[[runners]]\nname = \"ci\"\nurl = \"https://gitlab.example.com\"\ntoken = \"glrt-%s\"\nexecutor = \"kubernetes\"\n"+
				"[runners.kubernetes]\nnamespace = \"ci\"\nimage = \"a:1\"\nidle_entrypoint_image = \"e:1\"\nidle_strategy = \"pause\"\nidle_count = 1\n", token)
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load([]string{path})
		if test.apart {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "begins like the token of runners[0]")
		}
	}
}
