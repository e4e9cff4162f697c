package clustertest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// helperVariable turns a helper from a skipped test into a process whose outcome another test looks at.
const helperVariable = "IDLECOUNT_HELPER"

// outcome runs a helper in a process of its own.
func outcome(t *testing.T, helper string, environment ...string) (output string, passed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+helper+"$")
	cmd.Env = append(os.Environ(), append(environment, helperVariable+"=1")...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func helper(t *testing.T) {
	t.Helper()
	if os.Getenv(helperVariable) == "" {
		t.Skip("only run by other tests")
	}
}

func TestHelperLocal(t *testing.T) {
	helper(t)
	clustertest.Local(t)
}

func TestHelperRestConfig(t *testing.T) {
	helper(t)
	clustertest.RestConfig(t)
}

func requireLocal(t *testing.T) {
	t.Helper()
	if _, err := cluster.Find(t.Context()); err != nil {
		t.Skipf("%v", err)
	}
}

func TestWithoutItsClusterATestIsSkippedOrFails(t *testing.T) {
	requireLocal(t)
	another := clustertest.KubeconfigVariable + "=" + filepath.Join(t.TempDir(), "kubeconfig")

	// `make test` says that a cluster is required; here it isn't.
	output, passed := outcome(t, "TestHelperLocal", another, clustertest.ClusterVariable+"=")
	require.True(t, passed, output)
	require.Contains(t, output, "SKIP")
	require.Contains(t, output, "go run ./e2e/cmd/cluster up")

	output, passed = outcome(t, "TestHelperLocal", another, clustertest.ClusterVariable+"=required")
	require.False(t, passed, output)
	require.Contains(t, output, "go run ./e2e/cmd/cluster up")

	output, passed = outcome(t, "TestHelperRestConfig", another)
	require.False(t, passed, "a kubeconfig that was named and is not there is a mistake: %s", output)
	require.Contains(t, output, "no such file")
}

func TestNamespaceIsUsableAtOnceAndGoesWithItsTest(t *testing.T) {
	config := clustertest.RestConfig(t)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	var names []string
	t.Run("A name with CAPITALS/and signs, and much longer than a namespace's name may ever be", func(t *testing.T) {
		for range 2 {
			name := clustertest.Namespace(t)
			names = append(names, name)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec:       corev1.PodSpec{NodeSelector: map[string]string{"no": "such-node"}, Containers: []corev1.Container{{Name: "c", Image: "any"}}},
			}
			_, err := client.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	})
	require.Len(t, names, 2)
	require.NotEqual(t, names[0], names[1])
	for _, name := range names {
		require.True(t, strings.HasPrefix(name, "t-testnamespaceisusable"), name)
		namespace, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err) || namespace.DeletionTimestamp != nil, name)
	}
}
