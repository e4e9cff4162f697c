//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// scriptCases are what every shell must do alike.
func scriptCases() map[string]struct {
	script string
	out    string
	code   int
} {
	return map[string]struct {
		script string
		out    string
		code   int
	}{
		"standard output and error come in order": {"#!/usr/bin/env bash\necho 1; echo 2 >&2; echo 3\n(echo 4 >&2); echo 5", "1\n2\n3\n4\n5\n", 0},
		"the exit code is the shell's":            {"exit 42", "", 42},
		"an unknown command is 127":               {"no-such-command 2>/dev/null", "", 127},
		"errexit ends it":                         {"set -o errexit\nfalse\necho not here", "", 1},
		"a signal is 128 and its number":          {"kill -9 $$", "", 137},
		"a script that reads stdin finds nothing": {"cat; read x; echo \"x=$x\"\ncat\necho end", "x=\nend\n", 0},
		"an empty script":                         {"", "", 0},
		"a script without a newline at its end":   {"echo a\necho b", "a\nb\n", 0},
		"its own here-documents work":             {"cat <<X\nin\nX\necho out", "in\nout\n", 0},
		"quotes, newlines and dollars stay":       {"A='a\n\"$B\\n'\nprintf '%s\\n' \"$A\"", "a\n\"$B\\n\n", 0},
		"nobody inherits the script":              {"for f in /proc/self/fd/*; do readlink $f; done | grep -c memfd", "0\n", 1},
		"descriptor 3 is free":                    {"(echo x >&3) 2>/dev/null && echo open\nexec 3>&1\necho y >&3", "y\n", 0},
		// But 32, which the C library keeps for itself, and ignores in what make starts.
		"no signal is blocked or ignored":         {"grep -E 'Sig(Blk|Ign)' /proc/self/status | grep -v '00000000[08]0000000'", "", 1},
		"nothing of ours is in the environment":   {"env | grep IDLECOUNT_", "", 1},
		"it leads a session of its own":           {"[ $(cut -d' ' -f6 /proc/self/stat) = $$ ] && echo yes", "yes\n", 0},
		"no script text is in any argument":       {"# s3cret-mark\ncat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' ' ' | grep -c s3cret-[m]ark", "0\n", 1},
		"a broken pipe kills its writer":          {"yes | head -n 1; exit 0", "y\n", 0},
		"what a trap prints at the end is kept":   {"trap 'echo bye' EXIT\necho hi\nexit 3", "hi\nbye\n", 3},
		"a subshell's last words are kept":        {"(sleep 0.02; echo late)\nexit 0", "late\n", 0},
		"output after closing stdout is no error": {"echo a\nexec >&- 2>&-\nexit 5", "a\n", 5},
	}
}

// testScripts runs the cases in the build container of a claimed pod.
func testScripts(t *testing.T, p *pod, shell string) {
	n := 0
	for name, c := range scriptCases() {
		t.Run(name, func(t *testing.T) {
			n++
			s := p.begin(t, wire.Build, fmt.Sprintf("case %d", n), c.script, 0)
			require.Equal(t, shell, s.hello.Shell)
			out, exit := s.rest()
			require.Equal(t, c.out, out)
			require.Equal(t, c.code, exit.Code)
			require.False(t, exit.Cancelled)
		})
	}
	t.Run("lines are counted from the script's first", func(t *testing.T) {
		out, _ := p.script(t, wire.Build, "lines", "no-such-command-1\n\nno-such-command-3\n")
		lines := strings.Split(out, "\n")
		require.Regexp(t, `(line )?1: .*no-such-command-1`, lines[0])
		require.Regexp(t, `(line )?3: .*no-such-command-3`, lines[1])
	})
	t.Run("a variable of more than 128 KiB", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 20<<10)
		out, exit := p.script(t, wire.Build, "big variable", "V='"+big+"'\nprintf '%s' \"$V\"\n")
		require.Zero(t, exit.Code)
		require.Len(t, out, len(big))
		require.Equal(t, sha256.Sum256([]byte(big)), sha256.Sum256([]byte(out)), "a difference is not worth 320 KiB of log")
	})
	t.Run("a script of several MB", func(t *testing.T) {
		out, exit := p.script(t, wire.Build, "big script", strings.Repeat(": ; # nothing to do here, for many lines\n", 100_000)+"echo done")
		require.Equal(t, "done\n", out)
		require.Zero(t, exit.Code)
	})
}

func TestScriptsOnTheHost(t *testing.T) {
	p, _ := claimedPod(t)
	s := p.begin(t, wire.Build, "a", "", 0)
	s.rest()
	testScripts(t, p, s.hello.Shell)
}
