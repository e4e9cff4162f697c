package cli_test

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/internal/cli"
)

// kubeconfig writes one whose only context "there" is a server, with the namespace "builds".
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
current-context: there
clusters: [{name: c, cluster: {server: "`+server+`"}}]
users: [{name: u, user: {}}]
contexts: [{name: there, context: {cluster: c, user: u, namespace: builds}}]
`), 0o600))
	return path
}

// closedPort is an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// refusing is an API server that has one answer.
func refusing(t *testing.T, status metav1.Status) string {
	t.Helper()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAClusterThatCannotBeUsed(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that fails is what is tested
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed := closedPort(t)

	for sentence, c := range map[string]struct {
		server string
		code   int
		says   []string
	}{
		"nothing listens": {
			"https://" + closed, cli.ExitCluster,
			[]string{"can't reach the API server https://" + closed, `context "there" of `, "connection refused", "Check that the cluster is up"},
		},
		"the name doesn't exist": {
			"https://no-such-cluster.invalid:6443", cli.ExitCluster,
			[]string{"https://no-such-cluster.invalid:6443", "no-such-cluster.invalid", "Check the server's name"},
		},
		"the certificate is of an unknown authority": {
			untrusted.URL, cli.ExitCluster, []string{untrusted.URL, "signed by an authority that the kubeconfig doesn't name"},
		},
		"the server speaks no TLS": {
			strings.Replace(plain.URL, "http:", "https:", 1), cli.ExitCluster, []string{"doesn't speak TLS", "Check http or https"},
		},
		"somebody listens and never answers": {
			"http://" + taken(t), cli.ExitCluster, []string{"no answer. Check that the cluster is up, that the address is right, and VPN, proxy and firewall"},
		},
		"the credentials are not accepted": {
			refusing(t, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: 401, Message: "Unauthorized"}),
			cli.ExitCluster, []string{"doesn't accept the credentials of context \"there\"", "log in again"},
		},
		"a verb is missing": {
			refusing(t, metav1.Status{
				Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403,
				Message: `configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "builds"`,
			}),
			cli.ExitError,
			[]string{`User "jane" cannot list resource "configmaps" in API group "" in the namespace "builds"`, "`idlecount manifests` prints the rights"},
		},
		"the server is ill": {
			refusing(t, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500, Message: "etcdserver: no leader"}),
			cli.ExitError, []string{"list the pools' ConfigMaps: etcdserver: no leader"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			code, stdout, stderr := idlecount(t.Context(), "status", "--kubeconfig", kubeconfig(t, c.server), "--request-timeout", "2s")
			for _, s := range c.says {
				require.Contains(t, stderr, s)
			}
			require.Equal(t, 1, strings.Count(stderr, "error: "), "printed once: %s", stderr)
			require.Equal(t, c.code, code, stderr)
			require.Empty(t, stdout)
		})
	}
}

func TestNoClusterIsNamed(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("HOME", t.TempDir())

	t.Run("KUBECONFIG names no file", func(t *testing.T) {
		t.Setenv("KUBECONFIG", nowhere)
		code, _, stderr := idlecount(t.Context(), "status")
		require.Equal(t, cli.ExitError, code)
		require.Equal(t, "error: no cluster is named: there is no cluster in "+nowhere+
			". Give --kubeconfig or --server, set KUBECONFIG, or run in a pod with a service account\n", stderr)
	})
	t.Run("--kubeconfig names no file", func(t *testing.T) {
		code, _, stderr := idlecount(t.Context(), "status", "--kubeconfig", nowhere)
		require.Equal(t, cli.ExitError, code)
		require.Contains(t, stderr, nowhere+": no such file")
	})
	t.Run("the context doesn't exist", func(t *testing.T) {
		code, _, stderr := idlecount(t.Context(), "status", "--kubeconfig", kubeconfig(t, "https://127.0.0.1:1"), "--context", "prod")
		require.Equal(t, cli.ExitError, code)
		require.Contains(t, stderr, "context was not found for specified context: prod")
	})
}

// taken is an address on which somebody listens, who never says anything.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestTheConnectionOfTheConfiguration: [runners.kubernetes] host says where the cluster is, unless the user does.
func TestTheConnectionOfTheConfiguration(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	write := func(tables string) string {
		path := filepath.Join(t.TempDir(), "config.toml")
		require.NoError(t, os.WriteFile(path, []byte(tables), 0o600))
		return path
	}
	runner := func(name, host string) string {
		return `
[[runners]]
  name = "` + name + `"
  url = "https://gitlab.example.com"
  token = "glrt-` + name + `aaaaaaaaaaa"
  executor = "custom"
  [runners.kubernetes]
    host = "` + host + `"
    image = "alpine:3.22"
    idle_count = 1
`
	}
	// Servers that answer at once; what they answer says who was asked.
	unauthorized := metav1.Status{Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: 401, Message: "Unauthorized"}
	first, second := refusing(t, unauthorized), refusing(t, unauthorized)
	for sentence, c := range map[string]struct {
		config string
		args   []string
		code   int
		says   string
	}{
		"host of the configuration": {
			runner("one", first) + runner("two", first), nil, cli.ExitCluster, first + " doesn't accept the credentials of runners[0].kubernetes.host: ",
		},
		"a flag wins": {
			runner("one", first), []string{"--server", second}, cli.ExitCluster, second + " doesn't accept the credentials of --server: ",
		},
		"a kubeconfig wins": {
			runner("one", first), []string{"--kubeconfig", kubeconfig(t, second)}, cli.ExitCluster, second + " doesn't accept the credentials of context \"there\" of ",
		},
		"two clusters for one manager": {
			runner("one", first) + runner("two", second), nil, cli.ExitError, "runners[0].kubernetes and runners[1].kubernetes name two API servers",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			code, _, stderr := idlecount(t.Context(), append([]string{"run", "--listen-address", "", "-c", write(c.config)}, c.args...)...)
			require.Equal(t, c.code, code, stderr)
			require.Contains(t, stderr, c.says)
		})
	}
}
