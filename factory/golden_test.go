package factory

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/config"
)

var update = flag.Bool("update", false, "write testdata/*.yaml anew; look at the difference before you commit it")

// shapes are the configurations below testdata, with a job each and the hash of the shape that the job gets there.
// A hash that changes parts every driver from its warm pods during an upgrade: if it is meant to, raise wire.Protocol.
var shapes = map[string]struct {
	job        Job
	pool, hash string // shape hashes of the pool and of the job
}{
	"minimal":    {Job{}, "e9a3f4a69f", "e9a3f4a69f"},
	"full":       {Job{}, "cf59dccf0a", "cf59dccf0a"},
	"services":   {servicesJob(), "cb7fe6dd3f", "a11abd8c71"},
	"restricted": {Job{}, "bbe8e5f82b", "bbe8e5f82b"},
	"privileged": {Job{}, "cb0d45e5fb", "cb0d45e5fb"},
}

func servicesJob() Job {
	return Job{
		Image:      "node:25",
		PullPolicy: []string{"if-not-present"},
		User:       "1000:1001",
		Services: []Service{
			{Name: "postgres:17", Aliases: []string{"db docker"}, Variables: map[string]string{"POSTGRES_PASSWORD": "hunter2", "PGDATA": "/tmp/data", "not a name": "dropped"}},
			{Name: ""},
			{Name: "registry.example.com:5000/group/sub/mock", Entrypoint: []string{"/mock"}, Command: []string{"--port", "8080"}, User: "65534"},
			{Name: "redis", Aliases: []string{"db", "redis-1"}, Variables: map[string]string{"A": "1"}},
		},
	}
}

// testMeta is a job as a driver tells of it.
func testMeta() JobMeta {
	return JobMeta{
		ID: "101", ClaimedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600)), Timeout: time.Hour,
		Name: "build: [linux, amd64]", URL: "https://gitlab.example.com/grp/prj/-/jobs/101",
		SHA: "0123456789012345678901234567890123456789", BeforeSHA: strings.Repeat("0", 40), Ref: "feature/ä",
		ConcurrentID: "2", ProjectID: "7", ProjectName: "prj", Namespace: "grp/sub", NamespaceID: "3", RootNamespace: "grp",
		Variables: map[string]string{"CI_PROJECT_PATH": "grp/sub/prj", "CI_PIPELINE_ID": "11"},
	}
}

// load reads the one runner of a file below testdata.
func load(t testing.TB, name string) config.Runner {
	t.Helper()
	cfg, err := config.Load([]string{filepath.Join("testdata", name+".toml")})
	require.NoError(t, err)
	require.Len(t, cfg.Runners, 1)
	return cfg.Runners[0]
}

func shapeOf(t testing.TB, r config.Runner, job Job) Shape {
	t.Helper()
	s, err := ShapeOf(r, job)
	require.NoError(t, err)
	return s
}

var testAnchor = Owner{Name: "the-anchor", UID: "11111111-2222-3333-4444-555555555555"}

// objects are all that idlecount would create for a configuration and a job, as the golden file of that name has them.
func objects(t testing.TB, name string) []any {
	t.Helper()
	r, job := load(t, name), shapes[name].job
	pool, asked := shapeOf(t, r, Job{}), shapeOf(t, r, job)
	idle := IdlePod(r, pool, PodName(PoolName(r, pool), "x7k2p"), r.Kubernetes.IdleTime.Duration, testAnchor)
	cold := JobPod(r, asked, JobPodName(r, "101", "b3q9z"), testMeta())
	all := []any{Anchor(r, pool), idle, cold}
	created := cold.DeepCopy()
	created.UID = "66666666-7777-8888-9999-000000000000"
	for _, secret := range Dependents(created, asked, job) {
		all = append(all, secret)
	}
	return all
}

func TestGolden(t *testing.T) {
	for name := range shapes {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, object := range objects(t, name) {
				text, err := yaml.Marshal(object)
				require.NoError(t, err)
				got.WriteString("---\n")
				got.Write(text)
			}
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "run: go test ./factory -update")
			require.Equal(t, string(want), got.String(), "if this is meant, run: go test ./factory -update")
		})
	}
}

func TestTheHashOfAShapeStaysTheSameOverReleases(t *testing.T) {
	for name, want := range shapes {
		t.Run(name, func(t *testing.T) {
			r := load(t, name)
			require.Equal(t, want.pool, shapeOf(t, r, Job{}).Hash())
			require.Equal(t, want.hash, shapeOf(t, r, want.job).Hash())
		})
	}
}
