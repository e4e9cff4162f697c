package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/claim"
)

// patience bounds every wait for something that is to happen; it only passes where it doesn't. On a machine that is busy
// with other tests a KWOK node takes half a minute for what else takes it a second.
const patience = 3 * time.Minute

// ground is a namespace of a real cluster, and a runner of its own.
type ground struct {
	t         *testing.T
	rest      *rest.Config
	client    kubernetes.Interface
	namespace string
	token     string
	view      *view
}

// kwok brings pods onto KWOK nodes, where they are Ready at once and stay so; nowhere has no node, so that a test can write
// what a kubelet would.
const (
	kwok = `
    node_selector = {type = "kwok"}
    node_tolerations = {"kwok.x-k8s.io/node=fake" = "NoSchedule"}`
	nowhere = `
    node_selector = {"idlecount.dev/test" = "nowhere"}`
)

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{t: t, rest: clustertest.RestConfig(t), token: "t" + rand.String(8)}
	var err error
	g.client, err = kubernetes.NewForConfig(g.rest)
	require.NoError(t, err)
	g.namespace = clustertest.Namespace(t)
	g.view = newView(t, g.client, g.namespace)
	return g
}

func (g *ground) needsKWOK() *ground {
	clustertest.NeedsKWOK(g.t, g.client)
	return g
}

func (g *ground) needsKubelet() *ground {
	nodes, err := g.client.CoreV1().Nodes().List(g.t.Context(), metav1.ListOptions{LabelSelector: "type!=kwok"})
	require.NoError(g.t, err)
	if len(nodes.Items) == 0 {
		g.t.Skip("the cluster has no node with a kubelet")
	}
	return g
}

// config is the ground's runner with some keys of its [runners.kubernetes] table.
func (g *ground) config(keys ...string) *config.Config { return g.configLimited(0, keys...) }

func (g *ground) configLimited(limit int, keys ...string) *config.Config {
	return load(g.t, fmt.Sprintf(`
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-%s"
  executor = "custom"
  limit = %d
  [runners.kubernetes]
    namespace = %q
    image = "job:1"
    helper_image = "helper:1"
    idle_entrypoint_image = "entrypoint:1"
    %s
`, g.token, limit, g.namespace, strings.Join(keys, "\n    ")))
}

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := config.Load([]string{path})
	require.NoError(t, err, text)
	return c
}

// manager is a running manager.
type manager struct {
	t        *testing.T
	log      *logs
	registry *prometheus.Registry
	health   *pool.Health
	cancel   context.CancelFunc
	done     chan error
}

type option func(*pool.Options, *rest.Config)

// manage starts a manager; it is stopped at the end of the test, if not before.
func (g *ground) manage(c *config.Config, options ...option) *manager {
	g.t.Helper()
	m := &manager{t: g.t, log: newLogs(), registry: prometheus.NewRegistry(), health: &pool.Health{}, done: make(chan error, 1)}
	rc := rest.CopyConfig(g.rest)
	o := pool.Options{
		Config: c, Identity: "manager-" + rand.String(5), LeaseNamespace: g.namespace,
		Log: slog.New(slog.NewTextHandler(m.log, nil)), Registry: m.registry, Health: m.health,
		RetryPeriod: 200 * time.Millisecond,
	}
	for _, option := range options {
		option(&o, rc)
	}
	var err error
	o.Client, err = kubernetes.NewForConfig(rc)
	require.NoError(g.t, err)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(g.t.Context()))
	go func() { m.done <- pool.Run(ctx, o) }()
	g.t.Cleanup(m.stop)
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("log of %s:\n%s", o.Identity, m.log)
		}
	})
	return m
}

// stop ends the manager as SIGTERM does, and waits.
func (m *manager) stop() {
	m.cancel()
	select {
	case err := <-m.done:
		m.done <- err
		require.NoError(m.t, err)
	case <-time.After(patience):
		m.t.Error("the manager doesn't stop")
	}
}

// metric is the sum of a metric over the series that have all of the labels.
func (m *manager) metric(name string, labels ...string) int {
	m.t.Helper()
	return int(clustertest.Metric(m.t, m.registry, name, labels...))
}

// logs are a manager's log, which tests wait on.
type logs struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newLogs() *logs { return &logs{changed: make(chan struct{}, 1)} }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.changed:
		case <-timeout:
			t.Fatalf("the log never says %q:\n%s", text, l)
		}
	}
}

// claim takes a pod as a driver does.
func (g *ground) claim(c *config.Config, job string) *corev1.Pod {
	g.t.Helper()
	shape, err := factory.ShapeOf(c.Runners[0], factory.Job{})
	require.NoError(g.t, err)
	claimed, err := claim.Claim(g.t.Context(), g.client.CoreV1().Pods(g.namespace), claim.Request{
		Runner: c.Runners[0], Shape: shape, Job: factory.JobMeta{ID: job, Timeout: time.Hour},
	})
	require.NoError(g.t, err)
	return claimed.Pod
}

func (g *ground) delete(pod *corev1.Pod) {
	g.t.Helper()
	err := g.client.CoreV1().Pods(g.namespace).Delete(g.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	require.NoError(g.t, err)
}

// kubelet writes a pod's status as a kubelet would.
func (g *ground) kubelet(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	g.t.Helper()
	pods := g.client.CoreV1().Pods(g.namespace)
	for {
		fresh, err := pods.Get(g.t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(g.t, err)
		change(&fresh.Status)
		if _, err = pods.UpdateStatus(g.t.Context(), fresh, metav1.UpdateOptions{}); err == nil {
			return
		}
		require.ErrorContains(g.t, err, "the object has been modified")
	}
}

func ready(s *corev1.PodStatus) {
	s.Phase = corev1.PodRunning
	s.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
	}
	s.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// transport lets a test see and hold up a manager's requests.
type transport struct {
	next   http.RoundTripper
	before func(*http.Request) error
	after  func(*http.Request, *http.Response)
}

func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if tr.before != nil {
		if err := tr.before(req); err != nil {
			return nil, err
		}
	}
	answer, err := tr.next.RoundTrip(req)
	if err == nil && tr.after != nil {
		tr.after(req, answer)
	}
	return answer, err
}

func through(tr *transport) option {
	return func(_ *pool.Options, rc *rest.Config) {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			tr.next = next
			return tr
		})
	}
}

// lagging delays what watches show, all of them or those of some resources.
func lagging(by time.Duration, resources ...string) option {
	return through(&transport{after: func(req *http.Request, answer *http.Response) {
		resource := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
		if req.URL.Query().Get("watch") == "true" && (len(resources) == 0 || slices.Contains(resources, resource)) {
			answer.Body = newLagged(answer.Body, by)
		}
	}})
}

// lagged is a stream whose bytes come late.
type lagged struct {
	io.Closer
	chunks chan chunk
	rest   []byte
}

type chunk struct {
	data []byte
	due  time.Time
	err  error
}

func newLagged(body io.ReadCloser, by time.Duration) *lagged {
	l := &lagged{Closer: body, chunks: make(chan chunk, 10000)}
	go func() {
		for {
			data := make([]byte, 32<<10)
			n, err := body.Read(data)
			l.chunks <- chunk{data[:n], time.Now().Add(by), err}
			if err != nil {
				return
			}
		}
	}()
	return l
}

func (l *lagged) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		c := <-l.chunks
		<-time.After(time.Until(c.due))
		if c.err != nil {
			return 0, c.err
		}
		l.rest = c.data
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

type answer struct {
	code int
	body string
}

// get asks the manager's handler.
func (m *manager) get(path string) answer {
	m.t.Helper()
	w := httptest.NewRecorder()
	pool.Handler(m.registry, m.health).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return answer{w.Code, w.Body.String()}
}
