package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/preflight"
)

func TestDoctorOfARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	file := writeConfig(t, c.namespace) // whose images are at a registry that isn't there
	t.Run("what can't be found out is no failure", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "doctor", "-c", file)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, []string{"CHECK", "STATUS", "WHAT"}, strings.Fields(lines(stdout)[0]))
		require.Regexp(t, `(?m)^image +unknown +registry\.invalid/job:1: can't be asked for from here: .*\n  -> see whether the nodes reach registry\.invalid$`, stdout)
		require.Equal(t, "11 checks: 8 ok, 3 unknown, 0 warnings, 0 failed\n", stderr)
	})
	t.Run("a right that is missing is one", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "doctor", "-c", file, "--manager-service-account", c.namespace+"/default", "-o", "json")
		require.Equal(t, cli.ExitError, code, stderr)
		require.NotContains(t, stderr, "error:", "it is in the table")
		var list struct{ Checks []preflight.Result }
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		failed := map[string]string{}
		for _, r := range list.Checks {
			if r.Status == preflight.Fail {
				failed[r.Object] = r.Message
			}
		}
		require.Len(t, failed, 2)
		require.Contains(t, failed["lease"], "system:serviceaccount:"+c.namespace+":default can't elect a leader")
		require.Contains(t, failed["manager"], "can't keep pools")
	})
	t.Run("the token of a runner is nowhere", func(t *testing.T) {
		for _, output := range []string{"wide", "yaml"} {
			_, stdout, stderr := c.idlecount(t, "doctor", "-c", file, "-o", output)
			require.NotContains(t, stdout+stderr, "klmnopqrst")
		}
	})
}

func TestDoctorThatCannotAsk(t *testing.T) {
	server := "http://" + closedPort(t)
	code, stdout, stderr := idlecount(t.Context(), "doctor", "-c", good, "--server", server)
	require.Equal(t, cli.ExitCluster, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "error: can't reach the API server "+server+" (--server): ")

	broken := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(broken, []byte("[[runners]]\nname = \n"), 0o600))
	code, _, stderr = idlecount(t.Context(), "doctor", "-c", broken, "--server", server)
	require.Equal(t, cli.ExitError, code)
	require.Contains(t, stderr, "error: "+broken+":2:")
}
