package kube

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"

	"idlecount.dev/idlecount/config"
)

const twoContexts = `apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: "https://a"}}, {name: b, cluster: {server: "https://b"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]
`

func TestWhichClusterIsUsed(t *testing.T) {
	folder := t.TempDir()
	file, empty := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "empty")
	require.NoError(t, os.WriteFile(file, []byte(twoContexts), 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for sentence, test := range map[string]struct {
		access Access
		table  config.Kubernetes
		want   string
		says   string
	}{
		"--kubeconfig":                          {access: Access{Kubeconfig: file}, want: "https://a"},
		"--kubeconfig and --context":            {access: Access{Kubeconfig: file, Context: "b"}, want: "https://b"},
		"KUBECONFIG":                            {access: Access{FromEnv: file}, want: "https://a"},
		"KUBECONFIG and context of config.toml": {access: Access{FromEnv: file}, table: config.Kubernetes{Context: "b"}, want: "https://b"},
		"--context over that of config.toml":    {access: Access{FromEnv: file, Context: "a"}, table: config.Kubernetes{Context: "b"}, want: "https://a"},
		"host of config.toml":                   {table: config.Kubernetes{Host: "https://c"}, want: "https://c"},
		"--kubeconfig over host of config.toml": {access: Access{Kubeconfig: file}, table: config.Kubernetes{Host: "https://c"}, want: "https://a"},
		"KUBECONFIG over host of config.toml":   {access: Access{FromEnv: file}, table: config.Kubernetes{Host: "https://c"}, want: "https://a"},
		"a kubeconfig that points nowhere":      {access: Access{Kubeconfig: filepath.Join(folder, "none")}, says: "none: no such file"},
		"a context that isn't there":            {access: Access{Kubeconfig: file, Context: "x"}, says: `context "x" does not exist`},
		"KUBECONFIG that points nowhere":        {access: Access{FromEnv: "/nope"}, says: "KUBECONFIG is /nope, and there is no such file"},
		"KUBECONFIG without a cluster":          {access: Access{FromEnv: empty}, says: "empty, which names no cluster"},
		"nothing at all":                        {says: "no cluster is configured"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.access.FromEnv)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			t.Setenv("HOME", folder)
			cfg, err := Config(test.access, test.table, "test")
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, cfg.Host)
			require.Equal(t, "application/vnd.kubernetes.protobuf", cfg.ContentType)
		})
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	client, err := New(&rest.Config{Host: "https://a"}, "ci", Patience{})
	require.NoError(t, err)
	pods := schema.GroupResource{Resource: "pods"}
	rbac := apierrors.NewForbidden(pods, "", errors.New(`User "system:serviceaccount:gitlab:runner" cannot list resource "pods" in API group "" in the namespace "ci"`))
	err = client.explain("list", "pods", rbac)
	require.ErrorContains(t, err, "may not list pods in namespace ci; the Role that `idlecount manifests` prints lets it")
	require.True(t, apierrors.IsForbidden(err))

	admission := apierrors.NewForbidden(pods, "p", errors.New(`violates PodSecurity "restricted:latest": privileged`))
	require.Equal(t, admission, client.explain("create", "pods", admission), "an object that is refused is no missing right")
	require.ErrorContains(t, client.explain("get", "pods", apierrors.NewUnauthorized("expired")), "https://a doesn't accept the credentials")
	require.NoError(t, client.explain("get", "pods", nil))
}

func TestWhatIsTriedAgainWithSPDY(t *testing.T) {
	require.True(t, needsSPDY(&httpstream.UpgradeFailureError{Cause: errors.New("websocket: bad handshake (403 Forbidden): proxy")}))
	require.False(t, needsSPDY(&httpstream.UpgradeFailureError{Cause: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")}), "it would be not found again")
	require.True(t, needsSPDY(&httpstream.UpgradeFailureError{Cause: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("cannot get"))}), "a role with create alone lets SPDY in")
	require.False(t, needsSPDY(errors.New("connection refused")))
	require.False(t, needsSPDY(nil))
}
