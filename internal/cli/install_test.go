package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli"
)

// apply sends each document as `kubectl apply --server-side` does, strictly: an unknown field is an error.
func (c realCluster) apply(t *testing.T, documents []unstructured.Unstructured, dryRun bool) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.config)
	require.NoError(t, err)
	options := metav1.PatchOptions{FieldManager: "tests", Force: new(true), FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for _, d := range documents {
		plural, _ := meta.UnsafeGuessKindToResource(d.GroupVersionKind())
		body, err := json.Marshal(d.Object)
		require.NoError(t, err)
		var resource dynamic.ResourceInterface = client.Resource(plural)
		if d.GetNamespace() != "" {
			resource = client.Resource(plural).Namespace(d.GetNamespace())
		}
		_, err = resource.Patch(t.Context(), d.GetName(), types.ApplyPatchType, body, options)
		require.NoError(t, err, "%s %s/%s", d.GetKind(), d.GetNamespace(), d.GetName())
	}
}

func documents(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var list []unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		var u unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal(doc, &u.Object))
		list = append(list, u)
	}
}

// TestTheManifestsOnARealCluster applies them without effect, and asks whether the manager's pod is admitted where Pod
// Security is at its strictest: a Deployment always is, its pods may not be.
func TestTheManifestsOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	manager := clustertest.Namespace(t)
	restrict := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
	_, err := c.CoreV1().Namespaces().Patch(t.Context(), manager, types.MergePatchType, []byte(restrict), metav1.PatchOptions{})
	require.NoError(t, err)

	room, _, _ := someCapacity(t, c.namespace, `idle_strategy = "buffer"`)
	code, stdout, stderr := idlecount(t.Context(), "manifests", "-n", manager, "-c", room, "--image", "registry.invalid/idlecount:1")
	require.Equal(t, cli.ExitOK, code, stderr)
	c.apply(t, documents(t, stdout), true)
	code, stdout, stderr = idlecount(t.Context(), "manifests", "-n", manager, "-c", writeConfig(t, c.namespace), "--image", "registry.invalid/idlecount:1")
	require.Equal(t, cli.ExitOK, code, stderr)
	docs := documents(t, stdout)
	c.apply(t, docs, true)

	var deployment appsv1.Deployment
	for _, d := range docs {
		if d.GetKind() == "Deployment" {
			b, err := json.Marshal(d.Object)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &deployment))
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Spec: deployment.Spec.Template.Spec}
	pod.Spec.ServiceAccountName = "default" // ours was not made: dry run
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err = c.CoreV1().Pods(manager).Create(t.Context(), pod.DeepCopy(), dry)
	require.NoError(t, err)
	pod.Spec.Containers[0].SecurityContext = nil
	_, err = c.CoreV1().Pods(manager).Create(t.Context(), pod, dry)
	require.True(t, apierrors.IsForbidden(err), "the namespace enforces nothing: %v", err)
}

// TestAManagerWithTheRightsOfTheManifests runs one as the service account that the manifests make, with nothing but
// their rights: it fills the pool, and stopping and starting it leaves the pods alone.
// It is not parallel, since `run` sets the logger of client-go for the whole process.
func TestAManagerWithTheRightsOfTheManifests(t *testing.T) {
	c := onCluster(t)
	manager := clustertest.Namespace(t)
	file := writeConfig(t, c.namespace)
	code, stdout, stderr := idlecount(t.Context(), "manifests", "-n", manager, "-c", file, "--image", "registry.invalid/idlecount:1")
	require.Equal(t, cli.ExitOK, code, stderr)
	var rights []unstructured.Unstructured
	for _, d := range documents(t, stdout) {
		if d.GetKind() != "Deployment" && d.GetKind() != "PriorityClass" {
			rights = append(rights, d)
		}
	}
	c.apply(t, rights, false)
	// The file that the Secret holds is the one that a manager in the cluster would read.
	secret, err := c.CoreV1().Secrets(manager).Get(t.Context(), "idlecount-config", metav1.GetOptions{})
	require.NoError(t, err)
	mounted := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(mounted, secret.Data["config.toml"], 0o600))

	pods := func() map[types.UID]string {
		found := map[types.UID]string{}
		list, err := c.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
		if err != nil {
			t.Log(err) // not require: a condition is no place to end a test
			return found
		}
		for _, p := range list.Items {
			found[p.UID] = p.Name
		}
		return found
	}
	args := []string{
		"run", "-c", mounted, "--kubeconfig", c.kubeconfig, "--as", "system:serviceaccount:" + manager + ":idlecount",
		"--leader-elect-namespace", manager, "--listen-address", "127.0.0.1:0", "--log-format", "json",
	}
	first := start(t, args...)
	require.Eventually(t, func() bool { return len(pods()) == 1 }, 30*time.Second, 50*time.Millisecond, "the pool is not filled:\n%s", first.log)
	require.Eventually(t, func() bool { code, _ := first.get("/readyz"); return code == http.StatusOK }, 30*time.Second, 50*time.Millisecond,
		"not ready:\n%s", first.log)
	code, body := first.get("/healthz")
	require.Equal(t, http.StatusOK, code, body)
	// A pass ends with its figures, so they come a moment after the pod.
	wanted := regexp.MustCompile(`(?m)^idlecount_pods_wanted\{.*\} 1$`)
	require.Eventually(t, func() bool { _, body = first.get("/metrics"); return wanted.MatchString(body) }, 30*time.Second, 50*time.Millisecond,
		"no figure of what is wanted")
	require.Contains(t, body, "process_resident_memory_bytes")
	before := pods()
	require.Len(t, before, 1)
	require.Eventually(t, func() bool { return strings.Contains(first.log.String(), "preflight checks are done") }, 30*time.Second, 50*time.Millisecond,
		"no preflight:\n%s", first.log)
	require.NotContains(t, first.log.String(), `"check":"rights"`, "the manifests give all the rights that there are to check")

	code, stdout, stderr = c.idlecount(t, "status", "-o", "json")
	require.Equal(t, cli.ExitOK, code)
	require.Empty(t, stderr, "the lease is found and held")
	require.Contains(t, stdout, `"state": "held"`)
	require.Contains(t, stdout, `"lease": "`+manager+`/idlecount"`)

	require.Equal(t, cli.ExitOK, first.stop(), "told to stop:\n%s", first.log)
	require.Equal(t, before, pods(), "a stop keeps every pod")
	for line := range strings.Lines(first.log.String()) {
		require.True(t, json.Valid([]byte(line)), "not JSON: %s", line)
	}

	second := start(t, args...)
	require.Eventually(t, func() bool { code, _ := second.get("/readyz"); return code == http.StatusOK }, 30*time.Second, 50*time.Millisecond,
		"not ready:\n%s", second.log)
	require.Eventually(t, func() bool {
		_, body := second.get("/metrics")
		return strings.Contains(body, "\nidlecount_leader 1\n")
	}, 30*time.Second, 50*time.Millisecond,
		"doesn't lead:\n%s", second.log)
	require.Equal(t, cli.ExitOK, second.stop())
	require.Equal(t, before, pods(), "a start keeps every pod")
}

// running is `idlecount run` in this process.
type running struct {
	log   *syncBuffer
	stop  func() int // as TERM does; the exit code
	fetch func(path string) (int, string)
}

func (r running) get(path string) (int, string) { return r.fetch(path) }

// start runs `idlecount run` until the test stops it, and finds the port that it listens on in its log.
func start(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	log := &syncBuffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, args, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: log})
	}()
	address := regexp.MustCompile(`"address":"([^"]+)"`)
	require.Eventually(t, func() bool { return address.MatchString(log.String()) }, 20*time.Second, 20*time.Millisecond, "serves nothing:\n%s", log)
	base := "http://" + address.FindStringSubmatch(log.String())[1]
	return running{
		log: log,
		stop: func() int {
			cancel()
			return <-ended
		},
		fetch: func(path string) (int, string) {
			response, err := http.Get(base + path) //nolint:gosec,noctx // a loopback address of our own
			if err != nil {
				return 0, err.Error()
			}
			defer func() { _ = response.Body.Close() }()
			body, _ := io.ReadAll(response.Body)
			return response.StatusCode, string(body)
		},
	}
}

func TestAManagerThatCannotStart(t *testing.T) {
	server := "http://" + closedPort(t)
	for sentence, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"the API server is away": {
			[]string{"--server", server, "--listen-address", ""}, cli.ExitCluster, "error: can't reach the API server " + server + " (--server): ",
		},
		"the address is taken": {
			[]string{"--server", server, "--listen-address", taken(t)}, cli.ExitError, "--listen-address names another address",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			code, _, stderr := idlecount(t.Context(), append([]string{"run", "-c", good}, c.args...)...)
			require.Equal(t, c.code, code, stderr)
			require.Contains(t, stderr, c.says)
			require.Equal(t, 1, strings.Count(stderr, "error: "), stderr)
			require.Contains(t, stderr, "level=WARN", "warnings of the configuration are logged")
			require.Contains(t, stderr, "runners[0].kubernetes.bearer_token")
		})
	}
}
