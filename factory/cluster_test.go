package factory_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// TestTheAPIServerTakesTheGoldens sends what the golden files hold to a real API server, as a dry run, into namespaces
// that enforce Pod Security.
func TestTheAPIServerTakesTheGoldens(t *testing.T) {
	for _, c := range []struct {
		golden, level string
		refused       string // part of the refusal, where the level is too strict for the configuration
	}{
		{"minimal", "baseline", ""},
		{"minimal", "restricted", "runAsNonRoot != true"},
		{"full", "baseline", ""},
		{"services", "baseline", ""},
		{"restricted", "restricted", ""},
		{"privileged", "privileged", ""},
		{"privileged", "baseline", "must not set securityContext.privileged=true"},
	} {
		t.Run(c.golden+" in "+c.level, func(t *testing.T) {
			t.Parallel()
			client, namespace := enforcing(t, c.level)
			for _, pod := range pods(t, c.golden, namespace) {
				created, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun())
				if c.refused != "" {
					require.True(t, apierrors.IsForbidden(err), "%v", err)
					require.ErrorContains(t, err, c.refused)
					// What is wrong is in the configuration, never in what we add.
					require.NotContains(t, err.Error(), `"entrypoint"`)
					continue
				}
				require.NoError(t, err)
				// The shape says what a pod has; so nothing of it may be left for the server to fill in.
				require.Equal(t, imagesAndPolicies(pod), imagesAndPolicies(created))
			}
		})
	}
}

// TestQuotasOnLimitsAdmitPods: where a quota counts limits, one container without them keeps the pod out.
func TestQuotasOnLimitsAdmitPods(t *testing.T) {
	t.Parallel()
	client, namespace := enforcing(t, "restricted")
	amounts := corev1.ResourceList{"limits.cpu": resource.MustParse("2"), "limits.memory": resource.MustParse("1536Mi")}
	_, err := client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	counted(t, client, namespace)
	for _, pod := range pods(t, "restricted", namespace) {
		// Build, helper and the service need exactly what the quota has: the init container adds nothing.
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun())
		require.NoError(t, err)

		pod.Spec.InitContainers[0].Resources = corev1.ResourceRequirements{}
		_, err = client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun())
		require.ErrorContains(t, err, "must specify limits.cpu for: entrypoint", "the test would not notice a missing limit")
	}
}

// TestTheAPIServerTakesAnchorsAndSecrets: their names and labels are made from configuration, too.
func TestTheAPIServerTakesAnchorsAndSecrets(t *testing.T) {
	t.Parallel()
	client, namespace := enforcing(t, "restricted")
	var anchors, secrets int
	for _, golden := range []string{"minimal", "full", "services", "restricted", "privileged"} {
		for _, document := range documents(t, golden) {
			var kind metav1.TypeMeta
			require.NoError(t, yaml.Unmarshal(document, &kind))
			switch kind.Kind {
			case "ConfigMap":
				anchors++
				_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), decode[corev1.ConfigMap](t, document, namespace), dryRun())
				require.NoError(t, err)
			case "Secret":
				secrets++
				_, err := client.CoreV1().Secrets(namespace).Create(t.Context(), decode[corev1.Secret](t, document, namespace), dryRun())
				require.NoError(t, err)
			}
		}
	}
	require.Equal(t, 5, anchors)
	require.Equal(t, 2, secrets)
}

// enforcing makes a namespace that enforces a level of Pod Security, with the service account that full.toml names.
func enforcing(t *testing.T, level string) (kubernetes.Interface, string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	namespace := clustertest.Namespace(t)
	_, err = client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+level+`"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ci-jobs"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return client, namespace
}

// counted waits until the quota is in force: before that it refuses all.
func counted(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	changes, err := client.CoreV1().ResourceQuotas(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	deadline := time.After(time.Minute)
	for {
		select {
		case event := <-changes.ResultChan():
			require.NotEqual(t, watch.Error, event.Type)
			if quota, ok := event.Object.(*corev1.ResourceQuota); ok && len(quota.Status.Hard) > 0 {
				return
			}
		case <-deadline:
			t.Fatal("the quota controller has not counted the quota")
		}
	}
}

func dryRun() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
}

func documents(t *testing.T, golden string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", golden+".yaml"))
	require.NoError(t, err)
	var all [][]byte
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		all = append(all, []byte(document))
	}
	return all
}

// pods are the idle pod and the cold job's pod of a golden file.
func pods(t *testing.T, golden, namespace string) []*corev1.Pod {
	t.Helper()
	var all []*corev1.Pod
	for _, document := range documents(t, golden) {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(document, &kind))
		if kind.Kind == "Pod" {
			all = append(all, decode[corev1.Pod](t, document, namespace))
		}
	}
	require.Len(t, all, 2)
	return all
}

func decode[T any, P interface {
	*T
	SetNamespace(namespace string)
}](t *testing.T, document []byte, namespace string) P {
	t.Helper()
	object := P(new(T))
	require.NoError(t, yaml.UnmarshalStrict(document, object))
	object.SetNamespace(namespace)
	return object
}

func imagesAndPolicies(pod *corev1.Pod) []string {
	var all []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, c.Name+" "+c.Image+" "+string(c.ImagePullPolicy))
	}
	return all
}
