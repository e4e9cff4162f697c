// Package clustertest gives tests a real cluster, and keeps tests that break it apart from tests that use it.
//
// Which cluster: the one of the kubeconfig that IDLECOUNT_TEST_KUBECONFIG names, else the local one if it runs. Without
// any, a test is skipped, or fails if IDLECOUNT_TEST_CLUSTER is "required", as it is in `make test`.
//
// Test processes run at the same time and share the cluster. Who uses it holds a lock in shared mode, who injects
// faults holds it alone: RestConfig takes it the first way, Local the second, both until the end of the test.
package clustertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/cluster"
)

// The environment variables that say which cluster tests use.
const (
	// KubeconfigVariable holds the path of a kubeconfig.
	KubeconfigVariable = "IDLECOUNT_TEST_KUBECONFIG"
	// ClusterVariable is "required" where a missing cluster is a failure.
	ClusterVariable = "IDLECOUNT_TEST_CLUSTER"
	// exclusiveVariable is set during a test that holds the lock alone, so that RestConfig in it does not wait for itself.
	exclusiveVariable = "IDLECOUNT_TEST_EXCLUSIVE"
)

// RestConfig returns a configuration for an administrator of the cluster that tests use. While the test runs, no other
// test injects faults into the cluster. Call it after t.Parallel, not before.
func RestConfig(t testing.TB) *rest.Config {
	t.Helper()
	path := os.Getenv(KubeconfigVariable)
	if path == "" || isLocal(t, path) {
		// The lock comes first: a test that has it alone may have stopped the API server.
		lock(t, false)
		c, err := cluster.Find(t.Context())
		if err != nil {
			missing(t, err)
		}
		path = c.Kubeconfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("the kubeconfig %s for tests: %v", path, err)
	}
	// The client's own limits (5 requests a second) would be measured instead of ours.
	config.QPS, config.Burst = -1, 0
	return config
}

// Local returns the local cluster for injecting faults. No other test uses the cluster until the end of this one, so
// such tests should be few and short. Call it before RestConfig; the test can't be parallel.
func Local(t testing.TB) *cluster.Cluster {
	t.Helper()
	if path := os.Getenv(KubeconfigVariable); path != "" && !isLocal(t, path) { // before the lock, which may take long
		missing(t, fmt.Errorf("%s names another cluster, and faults are injected into the local one only", KubeconfigVariable))
	}
	Alone(t)
	c, err := cluster.Find(t.Context())
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() { repair(t, c) })
	return c
}

// isLocal says whether the kubeconfig is that of the local cluster, whatever its health, which another test may be
// breaking.
func isLocal(t testing.TB, kubeconfig string) bool {
	status, err := cluster.ReadStatus(t.Context(), cluster.Options{})
	return err == nil && status.Kubeconfig == kubeconfig
}

// Alone makes sure that no other test uses the cluster until the end of this one, whether or not there is a cluster. It
// is for tests that take the cluster down.
func Alone(t testing.TB) {
	t.Helper()
	if os.Getenv(exclusiveVariable) == "" {
		lock(t, true)
		t.Setenv(exclusiveVariable, "1")
	}
}

// repair leaves the cluster to the next test as this one found it, whatever it broke.
func repair(t testing.TB, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// A controller manager whose watches failed for long comes back to them after minutes; the next test needs it now.
	if err := errors.Join(c.Repair(ctx), c.Restart(ctx, cluster.ControllerManager)); err != nil {
		t.Errorf("the local cluster does not recover after this test: %v", err)
	}
}

func missing(t testing.TB, err error) {
	t.Helper()
	message := fmt.Sprintf("no cluster to test on: %v\nstart one with: go run ./e2e/cmd/cluster up\nor set %s to a kubeconfig", err, KubeconfigVariable)
	if os.Getenv(ClusterVariable) == "required" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// namespaceName makes a name for a namespace that says which test it belongs to.
func namespaceName(test string) string {
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(test), "-")
	name = strings.Trim(name[:min(len(name), 40)], "-")
	return "t-" + name + "-" + strings.ToLower(rand.Text()[:6])
}
