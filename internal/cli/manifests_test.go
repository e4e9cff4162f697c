package cli_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/internal/rights"
	"idlecount.dev/idlecount/pool"
)

func TestManifests(t *testing.T) {
	for name, args := range map[string][]string{
		"manifests.yaml":          {"-c", good, "-c", second, "--image", "registry.example.com/idlecount:1"},
		"manifests-existing.yaml": {"-c", good, "--image", "registry.example.com/idlecount:1", "-n", "gitlab", "--driver-service-account", "gitlab-runner/gitlab-runner"},
		"manifests-room.yaml":     {"-c", "testdata/config/room.toml", "--image", "registry.example.com/idlecount:1"},
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

// TestManifestsOfRoomGrantWhatHoldingItNeeds, in each namespace, and on the whole cluster nothing but PriorityClasses.
func TestManifestsOfRoomGrantWhatHoldingItNeeds(t *testing.T) {
	code, stdout, stderr := idlecount(t.Context(), "manifests", "-c", "testdata/config/room.toml", "--image", "x")
	require.Equal(t, cli.ExitOK, code, stderr)
	granted := map[string][]rbacv1.PolicyRule{}
	for _, d := range documents(t, stdout) {
		var role rbacv1.ClusterRole // whose rules are as those of a Role
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &role))
		granted[d.GetKind()+" "+d.GetNamespace()+"/"+d.GetName()] = role.Rules
	}
	rules := func(lists ...[]rights.Permission) []rbacv1.PolicyRule {
		var all []rbacv1.PolicyRule
		for _, p := range slices.Concat(lists...) {
			all = append(all, p.PolicyRule)
		}
		return all
	}
	for _, namespace := range []string{"ci", "nightly"} {
		require.Equal(t, rules(pool.Permissions(), capacity.Permissions(), capacity.BufferPermissions()), granted["Role "+namespace+"/idlecount"], namespace)
	}
	require.Equal(t, rules(capacity.ClusterPermissions()), granted["ClusterRole /idlecount"])
	require.Contains(t, granted, "ClusterRoleBinding /idlecount")
	require.Contains(t, granted, "PriorityClass /idlecount-pause")
}
