package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/internal/cli/manifests"
)

// Everything that a job needs must be possible with the rights that `idlecount manifests` gives, and no others.
func TestTheRightsOfTheManifestsAreEnough(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1})
	s.applyRights()
	s.runner.Environ = append(s.runner.Environ, "KUBECONFIG="+s.as(manifests.DriverName))
	managed := *s
	managed.kubeconfig = s.as("idlecount")
	managed.startManager()
	s.untilIdle(1)

	warm := numbered(runner.Job{Script: []string{"echo hi"}})
	result := s.run(warm)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("prepare")), "idle for")
	s.untilNone(warm.ID)
	cold := numbered(runner.Job{Image: s.ref(images.JobBusybox), Script: []string{"echo hi"},
		// The variables of a service need a Secret.
		Services: []runner.Service{{Name: s.ref(images.Service), Alias: "web", Variables: []runner.Variable{{Key: "PASSWORD", Value: "hunter2"}}}}})
	result = s.run(cold)
	require.Equal(t, runner.Success, result.Status)
	s.untilNone(cold.ID)

	// And the rights are what made it possible: another account may do nothing.
	config, err := clientcmd.BuildConfigFromFlags("", s.as("default"))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// as writes a kubeconfig for a service account of the site's namespace.
func (s *site) as(account string) string {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	require.NoError(s.t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + s.namespace + ":" + account
	}
	path := filepath.Join(s.t.TempDir(), account+".kubeconfig")
	require.NoError(s.t, clientcmd.WriteToFile(*config, path))
	return path
}

// applyRights creates the accounts and roles of the manifests, with the site's namespace as the manager's.
func (s *site) applyRights() {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.binaries.Idlecount, "manifests", "--namespace", s.namespace, "--config", s.config, "--image", "registry.invalid/idlecount:1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	yaml, err := cmd.Output()
	require.NoError(s.t, err, "%s", &stderr)
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	require.NoError(s.t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(s.t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	var roles int
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(yaml), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(s.t, err)
		}
		kind := object.GroupVersionKind()
		if kind.Group != "rbac.authorization.k8s.io" && kind.Kind != "ServiceAccount" {
			continue
		}
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(s.t, err)
		require.Equal(s.t, meta.RESTScopeNameNamespace, mapping.Scope.Name(), "no rights beyond namespaces")
		_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Apply(s.t.Context(), object.GetName(), object,
			metav1.ApplyOptions{FieldManager: "e2e", Force: true})
		require.NoError(s.t, err)
		if kind.Kind == "Role" {
			roles++
		}
	}
	require.Positive(s.t, roles)
}
