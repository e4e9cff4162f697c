package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// ground is a real node, the driver's binary, a stand-in for GitLab Runner that calls it, and a namespace in which the
// runner's service account may do what claim.Rules says and nothing else. No manager runs: tests make idle pods themselves.
type ground struct {
	client    kubernetes.Interface
	namespace string
	images    map[string]string
	runner    runner.Runner
	settings  config.Runner
	anchor    *corev1.ConfigMap
	file      string // config.toml

	kubeconfig string // of the runner's service account
}

// id counts the jobs of this process.
var id atomic.Int64

// built are the driver and the images, once for all tests of a process.
var built = sync.OnceValues(func() (*artefacts, error) {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "driver")
	if err != nil {
		return nil, err
	}
	a := &artefacts{driver: filepath.Join(folder, "idlecount-executor")}
	build := exec.CommandContext(ctx, "go", "build", "-o", a.driver, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the driver: %w\n%s", err, out)
	}
	set, err := images.Build(ctx, nil, images.Entrypoint, images.Helper, images.JobBash, images.JobBusybox, images.JobNonRoot)
	if err != nil {
		return nil, err
	}
	a.images = map[string]v1.Image{}
	for name, image := range set {
		a.images[string(name)] = image
	}
	return a, nil
})

type artefacts struct {
	driver string
	images map[string]v1.Image
}

// newGround makes a ground; more is text for [runners.kubernetes].
func newGround(t *testing.T, more ...string) *ground {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real node")
	}
	cfg := clustertest.RestConfig(t)
	a, err := built()
	require.NoError(t, err)
	local, err := cluster.Find(t.Context())
	if err != nil {
		t.Skipf("these tests publish images to the local cluster: %v", err)
	}
	g := &ground{namespace: clustertest.Namespace(t)}
	g.images, err = local.Publish(t.Context(), a.images)
	require.NoError(t, err)
	g.client, err = kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	folder := t.TempDir()
	g.kubeconfig = filepath.Join(folder, "kubeconfig")
	g.account(t, cfg, g.kubeconfig)

	g.file = filepath.Join(folder, "config.toml")
	require.NoError(t, os.WriteFile(g.file, []byte(g.toml(a.driver, more)), 0o600))
	loaded, err := config.Load([]string{g.file})
	require.NoError(t, err)
	g.settings = loaded.Runners[0]
	g.runner, err = runner.Load(g.file, "")
	require.NoError(t, err)
	g.runner.Environ = append(os.Environ(), "KUBECONFIG="+g.kubeconfig)
	g.runner.PrepareInterval = 100 * time.Millisecond
	g.anchor, err = g.client.CoreV1().ConfigMaps(g.namespace).Create(t.Context(), factory.Anchor(g.settings, g.shape(t)), metav1.CreateOptions{})
	require.NoError(t, err)
	return g
}

func (g *ground) toml(driver string, more []string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "[[runners]]\nname = \"ci\"\nurl = \"https://gitlab.example.com\"\ntoken = \"glrt-drivertst\"\nexecutor = \"custom\"\n[runners.custom]\n")
	for _, stage := range []string{"config", "prepare", "run", "cleanup"} {
		fmt.Fprintf(&s, "%s_exec = %q\n%s_args = [\"--config\", %q, %q]\n", stage, driver, stage, g.file, stage)
	}
	fmt.Fprintf(&s, "[runners.kubernetes]\nnamespace = %q\nimage = %q\nhelper_image = %q\nidle_entrypoint_image = %q\nidle_count = 1\nidle_time = \"30m\"\nautomount_service_account_token = false\n",
		g.namespace, g.images["job-bash"], g.images["helper"], g.images["entrypoint"])
	s.WriteString(strings.Join(more, "\n") + "\n")
	return s.String()
}

// account makes a service account with the rights of claim.Rules and a kubeconfig for it: each test shows that they suffice.
func (g *ground) account(t *testing.T, cfg *rest.Config, kubeconfig string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}
	for _, r := range claim.Rules() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: r.Verbs})
	}
	g.accountWith(t, cfg, kubeconfig, role)
}

func (g *ground) accountWith(t *testing.T, cfg *rest.Config, kubeconfig string, role *rbacv1.Role) {
	t.Helper()
	ctx := t.Context()
	name := role.Name
	_, err := g.client.CoreV1().ServiceAccounts(g.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = g.client.RbacV1().Roles(g.namespace).Create(ctx, role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = g.client.RbacV1().RoleBindings(g.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: g.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := g.client.CoreV1().ServiceAccounts(g.namespace).CreateToken(ctx, name, &authv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "x"
	require.NoError(t, clientcmd.WriteToFile(*file, kubeconfig))
}

func (g *ground) pods() typed.PodInterface { return g.client.CoreV1().Pods(g.namespace) }

func (g *ground) shape(t *testing.T) factory.Shape {
	t.Helper()
	shape, err := factory.ShapeOf(g.settings, factory.Job{})
	require.NoError(t, err)
	return shape
}

// idle makes n idle pods and waits until they are ready.
func (g *ground) idle(t *testing.T, n int) []*corev1.Pod {
	t.Helper()
	made := make([]*corev1.Pod, n)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() { made[i] = g.make(t, "idle-"+strconv.Itoa(i)) })
	}
	group.Wait()
	require.NotContains(t, made, (*corev1.Pod)(nil))
	return made
}

// make makes an idle pod and waits until it is ready.
func (g *ground) make(t *testing.T, name string) *corev1.Pod {
	pod := factory.IdlePod(g.settings, g.shape(t), name, 30*time.Minute, factory.Owner{Name: g.anchor.Name, UID: g.anchor.UID})
	if _, err := g.pods().Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("create pod %s: %v", name, err)
		return nil
	}
	return g.wait(t, name, func(pod *corev1.Pod) bool { return factory.ReadySince(pod) != nil })
}

// wait watches a pod until it is as wanted.
func (g *ground) wait(t *testing.T, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watch, err := g.pods().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		t.Errorf("watch pod %s: %v", name, err)
		return nil
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && wanted(pod) {
			return pod
		}
	}
	t.Errorf("pod %s didn't become as wanted", name)
	return nil
}

// ofJob returns the pods of a job.
func (g *ground) ofJob(t *testing.T, job int64) []corev1.Pod {
	t.Helper()
	pods, err := claim.FindByJob(t.Context(), g.pods(), g.settings, strconv.FormatInt(job, 10))
	require.NoError(t, err)
	return pods
}

// script is a job with an id of its own.
func script(lines ...string) runner.Job { return runner.Job{ID: id.Add(1), Script: lines} }

// run runs a job and logs what it said if the test fails.
func (g *ground) run(t *testing.T, work runner.Work) runner.Result {
	t.Helper()
	return g.runIn(t, t.Context(), work)
}

func (g *ground) runIn(t *testing.T, ctx context.Context, work runner.Work) runner.Result {
	t.Helper()
	result := g.runner.Run(ctx, work, nil)
	t.Logf("the job's log:\n%s", result.Log)
	return result
}
