package preflight_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/preflight"
)

// room is the configuration of a runner that keeps GitLab's executor, and of which room is held.
func (g ground) room(t *testing.T, strategy, lines string) *config.Config {
	t.Helper()
	return loadText(t, `
[[runners]]
  name = "room"
  url = "https://gitlab.example.com"
  token = "glrt-roomroomroomroomroom"
  executor = "kubernetes"
  [runners.kubernetes]
    namespace = "`+g.namespace+`"
    image = "127.0.0.1:1/job:1"
    cpu_request = "1"
    helper_cpu_request = "500m"
    idle_entrypoint_image = "127.0.0.1:1/entrypoint:1"
    idle_strategy = "`+strategy+`"
    idle_count = 3
`+lines)
}

// ofAClass has pause pods of a PriorityClass that every cluster has: that of idlecount may be there or not.
const ofAClass = `
    priority_class_name = "system-cluster-critical"
    [runners.kubernetes.autoscaler]
      pause_pod_priority_class_name = "system-cluster-critical"
`

func TestAdmissionOfPausePods(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		prepare      func(*testing.T, ground)
		lines        string
		status       preflight.Status
		message, fix string
	}{
		"nothing in the way": {nil, "", preflight.OK, "the API server takes its pause pods", ""},
		"more than a LimitRange allows in one container": {func(t *testing.T, g ground) {
			_, err := g.CoreV1().LimitRanges(g.namespace).Create(t.Context(), &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Name: "range"},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}}},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}, "", preflight.Fail, "the API server refuses its pause pods: ", "LimitRange"},
		"no such service account": {nil, `    service_account = "nobody"`, preflight.Fail, `serviceaccount "nobody" not found`, "service_account"},
		"no such class":           {nil, `    autoscaler = {pause_pod_priority_class_name = "none-such"}`, preflight.Fail, "no PriorityClass with name none-such", "make the PriorityClass"},
		"a quota that is full": {func(t *testing.T, g ground) {
			g.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")})
		}, "", preflight.Warn, "no room for one more pod now", "quota"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := onCluster(t)
			if c.prepare != nil {
				c.prepare(t, g)
			}
			lines := c.lines
			if !strings.Contains(lines, "autoscaler") {
				lines += ofAClass
			}
			cfg := g.room(t, "pause", lines)
			var r preflight.Result
			require.Eventually(t, func() bool {
				r = g.one(t, preflight.Options{Config: cfg}, preflight.Admission)
				return r.Status == c.status
			}, 10*time.Second, 100*time.Millisecond, "%+v", &r)
			require.Equal(t, "roomroomr-pause", r.Object)
			require.Contains(t, r.Message, c.message)
			require.Contains(t, r.Fix, c.fix)
			require.Equal(t, c.fix == "", r.Fix == "")
			pods, err := g.CoreV1().Pods(g.namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Empty(t, pods.Items, "a dry run leaves nothing")
		})
	}
}

// TestQuotasOfPausePods: what the manager would make is what is added up, helper and all.
func TestQuotasOfPausePods(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	cfg := g.room(t, "pause", `    idle_quota_headroom = 2`+ofAClass)
	g.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9"), corev1.ResourceRequestsCPU: resource.MustParse("7")})
	r := g.one(t, preflight.Options{Config: cfg}, preflight.Quota)
	require.Equal(t, preflight.Fail, r.Status, r.Message)
	require.Equal(t, "pause pods alone need more than it allows: requests.cpu: 7500m of 7 (3 of it for jobs)", r.Message)
	require.Contains(t, r.Fix, "idle_quota_headroom")

	// A pause pod that is there is part of what is wanted, and another pod is not.
	roomy := g.room(t, "pause", ofAClass)
	for name, labels := range map[string]map[string]string{"pause": {factory.LabelCapacity: "roomroomr-pause"}, "other": nil} {
		_, err := g.CoreV1().Pods(g.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: corev1.PodSpec{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}},
				Containers: []corev1.Container{{
					Name: "c", Image: "127.0.0.1:1/x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
				}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		r = g.one(t, preflight.Options{Config: roomy}, preflight.Quota)
		return r.Message == "pause pods need more than is left: requests.cpu: 6 of 7 (1500m of it for jobs), where others use 1500m now"
	}, 10*time.Second, 100*time.Millisecond, "%+v", &r)
}

func TestTheImageOfPausePods(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	cfg := g.room(t, "pause", `
    [runners.kubernetes.autoscaler]
      pause_pod_image = "127.0.0.1:1/pause:1"
      pause_pod_image_pull_secrets = ["missing"]
`)
	found := map[string]preflight.Status{}
	for _, r := range g.run(t, preflight.Options{Config: cfg}, preflight.Image) {
		found[r.Object] = r.Status
	}
	require.Equal(t, map[string]preflight.Status{"127.0.0.1:1/pause:1": preflight.Unknown, "secret/missing": preflight.Warn}, found)
}

// TestANamespaceThatIsMissing is said once, and nothing else is found good in it.
func TestANamespaceThatIsMissing(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	there := g.namespace
	g.namespace += "-not"
	account := &preflight.Account{Namespace: there, Name: "default"}
	results, err := preflight.Run(t.Context(), preflight.Options{
		Client: g, Config: g.room(t, "pause", ""), LeaseNamespace: there, Manager: account, Driver: account,
	})
	require.NoError(t, err)
	var failed []preflight.Result
	for _, r := range results {
		if r.Namespace == g.namespace {
			failed = append(failed, r)
		}
	}
	require.Equal(t, []preflight.Result{{
		Check: preflight.Namespace, Status: preflight.Fail, Namespace: g.namespace,
		Message: "doesn't exist, so nothing else is looked at in it", Fix: "kubectl create namespace " + g.namespace,
	}}, failed)

	t.Run("that of the lease", func(t *testing.T) {
		o := preflight.Options{Client: g, Config: load(t, there, ""), LeaseNamespace: g.namespace, Manager: account}
		require.Equal(t, preflight.Fail, g.run(t, o, preflight.Namespace)[1].Status)
		for _, r := range g.run(t, o, preflight.Rights) {
			require.NotEqual(t, "lease", r.Object)
		}
	})
	t.Run("who may not look doesn't know", func(t *testing.T) {
		seen := ground{g.Interface, g.config, there}
		r := g.one(t, preflight.Options{Client: seen.as(t, seen.account(t, "nobody", nil)), Config: load(t, there, "")}, preflight.Namespace)
		require.Equal(t, preflight.Unknown, r.Status)
		require.Contains(t, r.Fix, "get namespaces")
	})
}

// serving answers for the API group of CapacityBuffers, and leaves all else to the cluster: whether that has them is a
// matter of other tests.
type serving struct {
	http.RoundTripper
	version string // "" = none
}

func (s serving) RoundTrip(r *http.Request) (*http.Response, error) {
	const group = "/apis/autoscaling.x-k8s.io/"
	if !strings.HasPrefix(r.URL.Path, group) {
		return s.RoundTripper.RoundTrip(r)
	}
	status, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	if r.URL.Path == group+s.version {
		status, body = http.StatusOK, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"capacitybuffers","namespaced":true,"kind":"CapacityBuffer"}]}`
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

func TestBuffersNeedTheirAPI(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	as := func(version string) kubernetes.Interface {
		cfg := rest.CopyConfig(g.config)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return serving{next, version} })
		client, err := kubernetes.NewForConfig(cfg)
		require.NoError(t, err)
		return client
	}
	buffer := preflight.Options{Config: g.room(t, "buffer", "")}
	buffer.Client = as("v1alpha1")
	r := g.one(t, buffer, preflight.Buffer)
	require.Equal(t, preflight.OK, r.Status, r.Message)
	require.Contains(t, r.Message, "v1alpha1")
	require.Empty(t, g.run(t, buffer, preflight.Admission), "no pod is made for a buffer")

	buffer.Client = as("")
	r = g.one(t, buffer, preflight.Buffer)
	require.Equal(t, preflight.Fail, r.Status, r.Message)
	require.Contains(t, r.Message, "doesn't serve the CapacityBuffers")
	require.Contains(t, r.Fix, "install the CapacityBuffer CRD")
	require.Empty(t, g.run(t, preflight.Options{Config: g.room(t, "pause", "")}, preflight.Buffer), "who wants none isn't asked")
}
