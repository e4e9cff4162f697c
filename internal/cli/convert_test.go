package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/internal/cli"
)

func TestConvert(t *testing.T) {
	const example = "../../examples/docker-machine.toml"
	t.Run("the file goes to stdout, what is lost to stderr", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "convert", "--config", example)
		require.Equal(t, cli.ExitOK, code, stderr)
		golden(t, "convert.toml", stdout)
		lines := strings.SplitSeq(strings.TrimSpace(stderr), "\n")
		for line := range lines {
			require.True(t, strings.HasPrefix(line, "warning: "+example+": runners[0].machine"), line)
		}
		require.Contains(t, stderr, "machine.MaxBuilds: has no equivalent")
	})
	t.Run("what is printed is a second file that validate accepts beside the first", func(t *testing.T) {
		_, stdout, _ := idlecount(t.Context(), "convert", "--config", example)
		first, err := os.ReadFile(example)
		require.NoError(t, err)
		folder := t.TempDir()
		config, idle := filepath.Join(folder, "config.toml"), filepath.Join(folder, "idle.toml")
		changed := strings.ReplaceAll(string(first), "docker+machine", "custom") + "\n[runners.custom]\n"
		for _, stage := range []string{"config", "prepare", "run", "cleanup"} {
			changed += fmt.Sprintf("%s_exec = \"idlecount-executor\"\n%s_args = [\"--config\", \"/config.toml\", \"--config\", \"/idle.toml\", %q]\n", stage, stage, stage)
		}
		require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
		require.NoError(t, os.WriteFile(idle, []byte(stdout), 0o600))
		t.Setenv("RUNNER_TOKEN", "glrt-fakefakefake")
		code, _, stderr := idlecount(t.Context(), "validate", "-c", config, "-c", idle)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stderr, "1 runner with [runners.kubernetes], 1 pool\n")
	})
	t.Run("a file without such a table has nothing to convert", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "convert", "-c", good)
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		require.Equal(t, "error: "+good+": has no [runners.machine] table, so there is nothing to convert\n", stderr)
	})
	t.Run("every problem is named", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config.toml")
		require.NoError(t, os.WriteFile(path, []byte("[[runners]]\n[runners.machine]\nIdleCount = -1\nIdleTime = \"1h\"\n"), 0o600))
		code, stdout, stderr := idlecount(t.Context(), "convert", "-c", path)
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		require.Equal(t, "error: "+path+": runners[0].machine.IdleCount: -1 is not a number from 0 to 100000\n"+
			"error: "+path+": runners[0].machine.IdleTime: must be a whole number, it is the text \"1h\"\n", stderr)
	})
}
