package clustertest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
func outcome(t *testing.T, helper string, arguments []string, environment ...string) (output string, passed bool) {
	t.Helper()
	arguments = append([]string{"-test.v", "-test.run=^" + helper + "$"}, arguments...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], arguments...)
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
	clustertest.RestConfig(t) // must not wait for this test itself
	clustertest.Local(t)      // nor this
}

func TestHelperLocalAfterRestConfig(t *testing.T) {
	helper(t)
	clustertest.RestConfig(t)
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

func TestFaultsAndOtherTestsExcludeEachOther(t *testing.T) {
	requireLocal(t)
	const impatient = "-test.timeout=6s" // of which the last five are left for the message

	release, err := cluster.Lock(t.Context(), "tests", false, nil)
	require.NoError(t, err)
	output, passed := outcome(t, "TestHelperLocal", []string{impatient})
	require.False(t, passed, output)
	require.Contains(t, output, "other tests held the cluster")
	output, passed = outcome(t, "TestHelperRestConfig", nil)
	require.True(t, passed, output)
	release()

	release, err = cluster.Lock(t.Context(), "tests", true, nil)
	require.NoError(t, err)
	output, passed = outcome(t, "TestHelperRestConfig", []string{impatient})
	require.False(t, passed, output)
	require.Contains(t, output, "other tests held the cluster")
	release()

	output, passed = outcome(t, "TestHelperLocal", nil)
	require.True(t, passed, output)
	require.NotContains(t, output, "SKIP")
}

func TestWhoWaitsAloneIsNotOvertaken(t *testing.T) {
	requireLocal(t)
	release, err := cluster.Lock(t.Context(), "tests", false, nil)
	require.NoError(t, err)
	alone := exec.Command(os.Args[0], "-test.v", "-test.run=^TestHelperLocal$")
	alone.Env = append(os.Environ(), helperVariable+"=1")
	output, err := alone.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, alone.Start())
	t.Cleanup(func() { require.NoError(t, alone.Wait()) }) // after RestConfig, below, has let go
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.Contains(lines.Text(), "waiting for other tests") {
	}

	// It has the gate now or is about to take it; once it has, whoever comes later waits behind it.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		open, err := cluster.Lock(ctx, "tests-gate", false, nil)
		if err == nil {
			open()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond)
	late, passed := outcome(t, "TestHelperRestConfig", []string{"-test.timeout=6s"})
	require.False(t, passed, late)
	// A test of a process that has it already is let through, or both would wait for ever.
	clustertest.RestConfig(t)
	release()
}

func TestATestThatWouldWaitForItselfIsToldSo(t *testing.T) {
	requireLocal(t)
	output, passed := outcome(t, "TestHelperLocalAfterRestConfig", nil)
	require.False(t, passed, output)
	require.Contains(t, output, "call Local before RestConfig")
}

func TestWithoutItsClusterATestIsSkippedOrFails(t *testing.T) {
	requireLocal(t)
	another := clustertest.KubeconfigVariable + "=" + filepath.Join(t.TempDir(), "kubeconfig")

	output, passed := outcome(t, "TestHelperLocal", nil, another)
	require.True(t, passed, output)
	require.Contains(t, output, "SKIP")
	require.Contains(t, output, "go run ./e2e/cmd/cluster up")

	output, passed = outcome(t, "TestHelperLocal", nil, another, clustertest.ClusterVariable+"=required")
	require.False(t, passed, output)
	require.Contains(t, output, "go run ./e2e/cmd/cluster up")

	output, passed = outcome(t, "TestHelperRestConfig", nil, another)
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
	require.NotEqual(t, names[0], names[1])
	for _, name := range names {
		require.True(t, strings.HasPrefix(name, "t-testnamespaceisusable"), name)
		namespace, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err) || namespace.DeletionTimestamp != nil, name)
	}
}
