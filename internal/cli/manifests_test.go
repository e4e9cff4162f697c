package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/internal/cli"
)

func TestManifests(t *testing.T) {
	for name, args := range map[string][]string{
		"manifests.yaml":          {"-c", good, "-c", second, "--image", "registry.example.com/idlecount:1"},
		"manifests-existing.yaml": {"-c", good, "--image", "registry.example.com/idlecount:1", "-n", "gitlab", "--driver-service-account", "gitlab-runner/gitlab-runner"},
		"manifests-bare.yaml":     {"--image", "registry.example.com/idlecount:1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := idlecount(t.Context(), append([]string{"manifests"}, args...)...)
			require.Equal(t, cli.ExitOK, code, stderr)
			require.Empty(t, stderr)
			golden(t, name, stdout)
		})
	}
}

func TestManifestsOfAConfigurationWithoutRunnersOfOurs(t *testing.T) {
	code, stdout, stderr := idlecount(t.Context(), "manifests", "-c", "testdata/config/none.toml", "--image", "x")
	require.Equal(t, cli.ExitError, code)
	require.Empty(t, stdout)
	require.Equal(t, "error: no runner in testdata/config/none.toml is managed by idlecount: "+
		"none has a [runners.kubernetes] table and executor = \"custom\"\n", stderr)
}
