package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/status"
)

// realCluster is a namespace of the cluster that tests use, with a kubeconfig whose context is in it.
type realCluster struct {
	kubernetes.Interface
	config     *rest.Config
	namespace  string
	kubeconfig string
}

func onCluster(t *testing.T) realCluster {
	t.Helper()
	cfg := clustertest.RestConfig(t)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	c := realCluster{Interface: client, config: cfg, namespace: clustertest.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	file := clientcmdapi.NewConfig()
	file.CurrentContext = "tests"
	file.Contexts["tests"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: c.namespace}
	file.Clusters["c"] = &clientcmdapi.Cluster{
		Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		InsecureSkipTLSVerify: cfg.Insecure, TLSServerName: cfg.ServerName,
	}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificate: cfg.CertFile, ClientCertificateData: cfg.CertData, ClientKey: cfg.KeyFile, ClientKeyData: cfg.KeyData,
		Token: cfg.BearerToken, TokenFile: cfg.BearerTokenFile, Exec: cfg.ExecProvider,
	}
	require.NoError(t, clientcmd.WriteToFile(*file, c.kubeconfig))
	return c
}

// idlecount runs a command line against the cluster.
func (c realCluster) idlecount(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return idlecount(t.Context(), append(args, "--kubeconfig", c.kubeconfig)...)
}

// somePool is a runner with one pool in the namespace, whose pods no node takes: their status is what the test says.
func somePool(t *testing.T, namespace string) (config.Runner, factory.Shape) {
	t.Helper()
	cfg, err := config.Load([]string{writeConfig(t, namespace)})
	require.NoError(t, err)
	r := cfg.Runners[0]
	shape, err := factory.ShapeOf(r, factory.Job{Image: r.Kubernetes.Image})
	require.NoError(t, err)
	return r, shape
}

// writeConfig writes a config.toml of one runner that wants one idle pod, for which there is no node.
func writeConfig(t *testing.T, namespace string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(`
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "custom"
  [runners.kubernetes]
    namespace = "`+namespace+`"
    image = "registry.invalid/job:1"
    helper_image = "registry.invalid/helper:1"
    idle_entrypoint_image = "registry.invalid/entrypoint:1"
    idle_count = 1
    [runners.kubernetes.node_selector]
      "idlecount.dev/no-node" = "has-this"
`), 0o600))
	return path
}

// addAnchor makes a pool's anchor with a status, as the manager does.
func (c realCluster) addAnchor(t *testing.T, r config.Runner, s factory.Shape, st status.Status) *corev1.ConfigMap {
	t.Helper()
	return c.add(t, factory.Anchor(r, s), st.Encode())
}

func (c realCluster) add(t *testing.T, anchor *corev1.ConfigMap, status string) *corev1.ConfigMap {
	t.Helper()
	anchor.Data = map[string]string{factory.AnchorStatusKey: status}
	anchor, err := c.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), anchor, metav1.CreateOptions{})
	require.NoError(t, err)
	return anchor
}

// addPod makes a pod, and Ready if it shall be.
func (c realCluster) addPod(t *testing.T, pod *corev1.Pod, ready bool) {
	t.Helper()
	pod, err := c.CoreV1().Pods(c.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	if !ready {
		return
	}
	patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"` + time.Now().UTC().Format(time.RFC3339) + `"}]}}`
	_, err = c.CoreV1().Pods(c.namespace).Patch(t.Context(), pod.Name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

func (c realCluster) addLease(t *testing.T, renewed time.Time) {
	t.Helper()
	_, err := c.CoordinationV1().Leases(c.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "idlecount"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NewMicroTime(renewed)),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestStatusOfARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	r, shape := somePool(t, c.namespace)
	lease := c.namespace + "/idlecount"
	anchor := c.addAnchor(t, r, shape, status.Status{
		Runner: "ci", Image: "registry.invalid/job:1", Shape: shape.Hash(), Policy: "default", Want: 4, IdleTime: "30m0s", Lease: lease,
		Shortfall: &status.Shortfall{Reason: status.Unschedulable, Message: "0/4 nodes are available", Since: time.Now().Add(-10*24*time.Hour - time.Minute)},
	})
	owner := factory.Owner{Name: anchor.Name, UID: anchor.UID}
	c.addPod(t, factory.IdlePod(r, shape, "idle-a", 30*time.Minute, owner), true)
	c.addPod(t, factory.IdlePod(r, shape, "idle-b", 30*time.Minute, owner), true)
	c.addPod(t, factory.IdlePod(r, shape, "warming", 30*time.Minute, owner), false)
	c.addPod(t, factory.JobPod(r, shape, "job", factory.JobMeta{ID: "4242", ClaimedAt: time.Now()}), true)

	t.Run("nobody manages it", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, "warning: no manager runs: there is no lease "+lease+", idle pods are not refilled; start `idlecount run`\n", stderr)
		lines := strings.Split(stdout, "\n")
		require.Equal(t, strings.Fields("POOL IMAGE POLICY WANT IDLE WARMING CLAIMED FAILED OLDEST"), strings.Fields(lines[0]))
		require.Equal(t, []string{anchor.Name, "registry.invalid/job:1", "default", "4", "2", "1", "1", "0"}, strings.Fields(lines[1])[:8])
		require.Equal(t, "  -> 2 short: Unschedulable for 10d: 0/4 nodes are available", lines[2])
	})
	c.addLease(t, time.Now())
	t.Run("as JSON, with a manager", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", "-o", "json", "--pods")
		require.Equal(t, cli.ExitOK, code)
		require.Empty(t, stderr)
		var list struct {
			Pools    []status.Pool
			Managers []status.Manager
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.Len(t, list.Pools, 1)
		require.Equal(t, 2, list.Pools[0].Short)
		phases := map[string]factory.Phase{}
		for _, p := range list.Pools[0].Pods {
			phases[p.Name] = p.Phase
		}
		require.Equal(t, map[string]factory.Phase{"idle-a": factory.Idle, "idle-b": factory.Idle, "warming": factory.Warming, "job": factory.Claimed}, phases)
		require.Len(t, list.Managers, 1)
		require.Equal(t, leases.Held, list.Managers[0].State)
	})
	t.Run("by name, and a name that isn't there", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", anchor.Name, "nowhere", "-o", "name")
		require.Equal(t, cli.ExitError, code)
		require.Equal(t, anchor.Name+"\n", stdout)
		require.Equal(t, "error: there is no pool or capacity \"nowhere\" in namespace "+c.namespace+"; `idlecount status -A -o name` lists those that exist\n", stderr)
	})
	t.Run("in all namespaces", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", "-A", anchor.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stdout, "NAMESPACE")
		require.Contains(t, stdout, c.namespace)
	})
	t.Run("from a namespace that has no pools", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", "-n", "kube-public")
		require.Equal(t, cli.ExitOK, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "No pools or capacities in namespace kube-public; use -n or -A. There are some in: ")
		require.Contains(t, stderr, c.namespace)
	})
	t.Run("by somebody who may not see it: the verb is named", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", "--as", "jane")
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `User "jane" cannot list resource "configmaps" in API group "" in the namespace "`+c.namespace+`"`)
	})
	t.Run("completion offers the pools", func(t *testing.T) {
		code, stdout, _ := idlecount(t.Context(), "__complete", "status", "--kubeconfig", c.kubeconfig, "")
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, stdout, anchor.Name+"\n")
	})
}

func TestStatusFollowsARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	r, shape := somePool(t, c.namespace)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut syncBuffer
	ended := make(chan int)
	go func() {
		ended <- cli.Main(ctx, []string{"status", "--watch", "--kubeconfig", c.kubeconfig}, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
	}()
	shows := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), what) }, 20*time.Second, 20*time.Millisecond,
			"%q is not shown\nstdout:\n%s\nstderr:\n%s", what, &out, &errOut)
	}
	require.Eventually(t, func() bool {
		return strings.Contains(errOut.String(), "No pools or capacities in namespace "+c.namespace+" yet; waiting for some.")
	},
		20*time.Second, 20*time.Millisecond)

	anchor := c.addAnchor(t, r, shape, status.Status{Image: "registry.invalid/job:1", Policy: "first", Want: 1})
	shows("  -> 1 short: the manager has named no reason yet")
	c.addPod(t, factory.IdlePod(r, shape, "pod", 0, factory.Owner{Name: anchor.Name, UID: anchor.UID}), false)
	shows("  -> 1 short: 1 warming, the first for ")
	// The anchor takes its idle pod along; the job stays.
	c.addPod(t, factory.JobPod(r, shape, "job", factory.JobMeta{ID: "1", ClaimedAt: time.Now()}), false)
	require.NoError(t, c.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), anchor.Name, metav1.DeleteOptions{}))
	shows("  -> no pool has this shape")

	cancel()
	require.Equal(t, cli.ExitOK, <-ended)
	require.NotContains(t, out.String(), "\x1b", "nothing but text where no terminal is")
}

// syncBuffer is a buffer that one goroutine writes and another reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
