package e2e_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// TestDocumentedCommandsRun: what README.md and docs/ tell a user to type works as it stands there.
func TestDocumentedCommandsRun(t *testing.T) {
	site := newSite(t, settings{"idle_count": 1})
	site.startManager()
	pool := site.untilIdle(1)[0].Labels[factory.LabelPool]
	folder := t.TempDir()
	binary := filepath.Join(folder, "idlecount")
	require.NoError(t, os.Symlink(site.binaries.Idlecount, binary))
	examples, err := filepath.Glob("../examples/*.toml")
	require.NoError(t, err)
	for _, example := range examples {
		data, err := os.ReadFile(example)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(example)), data, 0o600))
	}
	commands := documented(t, "idlecount ")
	require.Greater(t, len(commands), 5, "the documents show commands")
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			// What comes after a pipe is kubectl's, and has tests of its own with what is printed here.
			typed, _, _ := strings.Cut(command, "|")
			typed = strings.ReplaceAll(typed, "/etc/gitlab-runner/config.toml", "config.toml")
			if name := regexp.MustCompile(`fakefakef-[0-9a-f]{10}`); name.MatchString(typed) {
				typed = strings.Replace(name.ReplaceAllString(typed, pool), "-n ci", "-n "+site.namespace, 1)
			}
			args := strings.Fields(typed)[1:]
			for i := range args {
				args[i] = strings.Trim(args[i], `"'`)
			}
			if args[0] == "run" || slices.ContainsFunc(args, func(a string) bool { return a == "-w" || a == "--watch" }) {
				args = append(args, "--help") // these don't end by themselves: their flags are checked
			}
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Dir, cmd.Env = folder, []string{"HOME=" + folder, "KUBECONFIG=" + site.kubeconfig, "RUNNER_TOKEN=glrt-fakefakefakefake"}
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && args[0] == "doctor" && exit.ExitCode() == 1 {
				require.Contains(t, string(out), "CHECK", "it has looked, and found that the example's namespace isn't there")
				return
			}
			require.NoError(t, err, "%s:\n%s", command, out)
		})
	}
}

// TestDocumentedTargetsExist: each `make` that a document names is a target of the Makefile.
func TestDocumentedTargetsExist(t *testing.T) {
	commands := documented(t, "make ")
	require.NotEmpty(t, commands)
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, inline := range regexp.MustCompile("`(make [a-z-]+)`").FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, inline[1])
	}
	for _, command := range commands {
		target := strings.Fields(command)[1]
		out, err := exec.CommandContext(t.Context(), "make", "-C", "..", "-n", target).CombinedOutput()
		require.NoError(t, err, "%s:\n%s", command, out)
	}
}

// TestTheReadmesConfigurationIsValid: people copy it.
func TestTheReadmesConfigurationIsValid(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, block)
	file := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(file, block[1], 0o600))
	cfg, err := config.Load([]string{file})
	require.NoError(t, err)
	require.Len(t, cfg.Runners, 1)
	require.Len(t, cfg.Runners[0].IdleImages(), 2)
}

// documented are the lines of the documents' shell blocks that begin with a word, without comments.
func documented(t *testing.T, word string) []string {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	var commands []string
	for _, name := range append(files, "../README.md") {
		file, err := os.Open(name)
		require.NoError(t, err)
		inside := false
		for lines := bufio.NewScanner(file); lines.Scan(); {
			line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "$ ")
			if strings.HasPrefix(line, "```") {
				inside = !inside
				continue
			}
			if line, _, _ = strings.Cut(line, " #"); inside && strings.HasPrefix(line, word) {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
		require.NoError(t, file.Close())
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}
