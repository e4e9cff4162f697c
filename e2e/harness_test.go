package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// kit is what all tests of this process share: programs for this machine, images for pods.
type kit struct {
	binaries images.Binaries
	set      images.Set
}

// folderVariable hands the process's folder from TestMain to the tests.
const folderVariable = "IDLECOUNT_E2E_FOLDER"

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "idlecount-e2e-")
	if err == nil {
		err = os.Setenv(folderVariable, folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build makes the kit once; a test that has no cluster never asks for it.
var build = sync.OnceValues(func() (kit, error) {
	ctx := context.Background()
	binaries, err := images.BuildBinaries(ctx, os.Getenv(folderVariable), images.Idlecount)
	if err != nil {
		return kit{}, err
	}
	set, err := images.Build(ctx, nil, images.Entrypoint, images.Helper, images.Service,
		images.JobBusybox, images.JobBash, images.JobNonRoot, images.JobEntrypoint, images.JobBare)
	if err != nil {
		return kit{}, err
	}
	return kit{binaries: binaries, set: set}, nil
})

// settings are keys of [runners.kubernetes]; an images.Name stands for the reference of that image.
type settings map[string]any

// site is a namespace with a config.toml for it: what a platform team has.
type site struct {
	t          *testing.T
	client     kubernetes.Interface
	kubeconfig string
	namespace  string
	refs       images.References
	binaries   images.Binaries
	config     string // path of config.toml
	runner     runner.Runner
}

// newSite makes a namespace and a config.toml: job-bash as the runner's image, no idle pods unless s says otherwise. It
// takes the cluster's shared lock, so call it after t.Parallel.
func newSite(t *testing.T, s settings) *site {
	t.Helper()
	rest := clustertest.RestConfig(t)
	client, err := kubernetes.NewForConfig(rest)
	require.NoError(t, err)
	k, err := build()
	require.NoError(t, err)
	target := target(t)
	refs, err := k.set.Publish(t.Context(), target)
	require.NoError(t, err)
	site := &site{t: t, client: client, kubeconfig: target.Kubeconfig(), refs: refs, binaries: k.binaries}
	site.namespace = clustertest.Namespace(t)
	site.configure(s)
	return site
}

// target is the cluster of the tests, as something to publish images to.
func target(t *testing.T) cluster.Target {
	t.Helper()
	kubeconfig := os.Getenv(clustertest.KubeconfigVariable)
	if kubeconfig == "" {
		c, err := cluster.Find(t.Context())
		require.NoError(t, err)
		return c
	}
	options := cluster.TargetOptions{Kind: cluster.KindExisting, Kubeconfig: kubeconfig, Registry: os.Getenv("REGISTRY")}
	target, err := cluster.Open(t.Context(), options)
	if err != nil {
		t.Skip(err)
	}
	return target
}

// configure writes config.toml, and reads it as GitLab Runner would. It may be called again with other settings.
func (s *site) configure(more settings) {
	s.t.Helper()
	table := settings{
		"namespace": s.namespace, "image": images.JobBash, "helper_image": images.Helper, "idle_entrypoint_image": images.Entrypoint,
		// Pods without requests are the first to be evicted from a machine that is busy with other tests.
		"cpu_request": "1m", "helper_cpu_request": "1m", "memory_request": "8Mi", "helper_memory_request": "8Mi",
		"poll_timeout": 300,
	}
	maps.Copy(table, more)
	for key, value := range table {
		if name, ok := value.(images.Name); ok {
			table[key] = s.refs[name]
		}
		if names, ok := value.([]images.Name); ok {
			var refs []string
			for _, name := range names {
				refs = append(refs, s.refs[name])
			}
			table[key] = refs
		}
	}
	s.config = filepath.Join(s.t.TempDir(), "config.toml")
	custom := map[string]any{"graceful_kill_timeout": 60}
	for _, stage := range []string{"config", "prepare", "run", "cleanup"} {
		custom[stage+"_exec"] = s.binaries.Executor
		custom[stage+"_args"] = []string{"--config", s.config, stage}
	}
	file, err := os.Create(s.config)
	require.NoError(s.t, err)
	require.NoError(s.t, toml.NewEncoder(file).Encode(map[string]any{"runners": []map[string]any{{
		"name": "e2e", "url": "https://gitlab.example.com", "token": "glrt-fakefakefakefake", "executor": "custom",
		"custom": custom, "kubernetes": table,
	}}}))
	require.NoError(s.t, file.Close())
	s.runner, err = runner.Load(s.config, "")
	require.NoError(s.t, err)
	s.runner.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "KUBECONFIG=" + s.kubeconfig}
	s.runner.PrepareInterval = 100 * time.Millisecond
	s.runner.Diagnostics = &testLog{s.t}
}

// with is the site in a sub-test.
func (s *site) with(t *testing.T) *site {
	t.Helper()
	sub := *s
	sub.t = t
	sub.runner.Diagnostics = &testLog{t}
	return &sub
}

// ref is the reference of an image.
func (s *site) ref(name images.Name) string { return s.refs[name] }

// run runs a job to its end. A job without an id gets one that no other has.
func (s *site) run(job runner.Job) runner.Result {
	s.t.Helper()
	result := s.runner.Run(s.t.Context(), numbered(job), nil)
	s.t.Logf("job log:\n%s", shorten(result.Log))
	return result
}

// numbered gives a job an id like GitLab's: no two jobs have the same.
func numbered(job runner.Job) runner.Job {
	if job.ID == 0 {
		job.ID = nextID()
	}
	return job
}

// lastID is the counter of this process.
var lastID atomic.Int64

func nextID() int64 {
	lastID.CompareAndSwap(0, time.Now().UnixMilli()*1000)
	return lastID.Add(1)
}

// shorten keeps logs of tests readable.
func shorten(log []byte) string {
	const most = 8000
	if len(log) <= most {
		return string(log)
	}
	return fmt.Sprintf("%s\n… %d bytes …\n%s", log[:most/2], len(log)-most, log[len(log)-most/2:])
}

// testLog is a writer into a test's log.
type testLog struct{ t *testing.T }

func (w *testLog) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}
