package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/factory"
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
		"none has a [runners.kubernetes] table and executor = \"custom\", or an idle_strategy for its own executor\n", stderr)
}

// TestManifestsWithoutADriver: where all runners keep GitLab's executor nobody calls it.
func TestManifestsWithoutADriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(file, []byte(`
[[runners]]
  name = "room"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "kubernetes"
  [runners.kubernetes]
    namespace = "ci"
    cpu_request = "1"
    idle_entrypoint_image = "r/entrypoint:1"
    idle_strategy = "pause"
    idle_count = 2
`), 0o600))
	code, stdout, stderr := idlecount(t.Context(), "manifests", "-c", file, "--image", "x")
	require.Equal(t, cli.ExitOK, code, stderr)
	require.Empty(t, stderr)
	var names []string
	for _, d := range documents(t, stdout) {
		names = append(names, d.GetKind()+" "+d.GetName())
	}
	require.Equal(t, []string{
		"ServiceAccount idlecount", "Role idlecount-lease", "RoleBinding idlecount-lease", "Role idlecount", "RoleBinding idlecount",
		"ClusterRole idlecount", "ClusterRoleBinding idlecount", "PriorityClass idlecount-pause", "Secret idlecount-config", "Deployment idlecount",
	}, names)
	require.NotContains(t, stdout, "idlecount-executor")

	_, same, stderr := idlecount(t.Context(), "manifests", "-c", file, "--image", "x", "--driver-service-account", "gitlab/runner")
	require.Equal(t, stdout, same)
	require.Contains(t, stderr, "--driver-service-account has no effect")
}

func TestManifestsForANamespaceWithAName(t *testing.T) {
	for namespace, code := range map[string]int{
		"executor": cli.ExitUsage, "executor-2": cli.ExitUsage, "lease": cli.ExitUsage, "pause": cli.ExitUsage, "executors": cli.ExitOK, "ci-executor": cli.ExitOK,
	} {
		got, _, stderr := idlecount(t.Context(), "manifests", "-n", namespace, "--image", "x")
		require.Equal(t, code, got, "%s: %s", namespace, stderr)
	}
}

// TestAwayAgain: what docs/install.md says to type takes away all that one installation had, in namespaces that have left its
// configuration too, and nothing that another one needs.
func TestAwayAgain(t *testing.T) {
	manual, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	selector := func(command string) labels.Selector {
		found := regexp.MustCompile(regexp.QuoteMeta(command) + ` .*?-l (\S+)`).FindSubmatch(manual)
		require.NotNil(t, found, command)
		s, err := labels.Parse(string(found[1]))
		require.NoError(t, err)
		return s
	}
	away, roles := selector("| kubectl delete"), selector("kubectl delete roles,rolebindings -A")
	made := func(namespace string) []unstructured.Unstructured {
		code, stdout, stderr := idlecount(t.Context(), "manifests", "-n", namespace, "-c", "testdata/config/room.toml", "--image", "x")
		require.Equal(t, cli.ExitOK, code, stderr)
		return documents(t, stdout)
	}
	for _, d := range made("idlecount") {
		require.Equal(t, d.GetKind() != "PriorityClass", away.Matches(labels.Set(d.GetLabels())), d.GetKind())
		namespaced := d.GetKind() == "Role" || d.GetKind() == "RoleBinding"
		require.Equal(t, namespaced || strings.HasPrefix(d.GetKind(), "ClusterRole"), roles.Matches(labels.Set(d.GetLabels())), d.GetKind())
	}
	for _, d := range made("other") {
		require.False(t, roles.Matches(labels.Set(d.GetLabels())), "%s %s of another installation", d.GetKind(), d.GetName())
	}
	for _, label := range []string{factory.LabelPool, factory.LabelCapacity} {
		require.Contains(t, string(manual), "\nkubectl delete configmaps -A -l "+label+"\n")
	}
	require.Contains(t, string(manual), "\nkubectl delete priorityclass "+factory.PausePriorityClass+"\n")
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
