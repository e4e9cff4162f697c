package capacity_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
)

// TestTheDocumentation: docs/capacity.md has every field, reason and metric, and names only tests that there are.
func TestTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/capacity.md")
	require.NoError(t, err)
	manual := string(page)
	for _, of := range []reflect.Type{reflect.TypeFor[status.Row](), reflect.TypeFor[status.Trouble]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			require.Contains(t, manual, "`"+name+"`")
		}
	}
	for _, reason := range []status.Reason{status.Limit, status.Quota, status.Priority, status.Admission, status.Config, status.Buffer, status.Access, status.API} {
		require.Contains(t, manual, "| `"+string(reason)+"` |")
	}

	registry := prometheus.NewRegistry()
	client, err := kubernetes.NewForConfig(&rest.Config{})
	require.NoError(t, err)
	_, err = capacity.New(capacity.Options{Client: client, LeaseNamespace: "n", LeaseName: "l", Registry: registry})
	require.NoError(t, err)
	described := make(chan *prometheus.Desc, 100)
	registry.Describe(described)
	close(described)
	count := 0
	for d := range described {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]
		require.Contains(t, manual, "| `"+name+"` |")
		count++
	}
	require.Equal(t, 6, count)

	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range append(files, "status/rows_test.go", "../factory/pause_test.go", "../factory/podlevel_cluster_test.go", "../e2e/capacity_test.go",
		"../internal/cli/manager_cluster_test.go",
		"../executor-plugin/giveback_cluster_test.go", "../executor-plugin/refused_cluster_test.go") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests.Write(text)
	}
	named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(manual, -1)
	require.Greater(t, len(named), 15)
	for _, m := range named {
		require.Contains(t, tests.String(), "func "+m[1]+"(", "no such test")
	}
}

// TestTheTwoTablesMeanTheSame: GitLab's policies in the manual, and what it says that they become. Where GitLab Runner's own
// executor doesn't act on the first they are read as it reads them.
func TestTheTwoTablesMeanTheSame(t *testing.T) {
	page, err := os.ReadFile("../docs/capacity.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## Coming from GitLab's pause pods")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 2)
	calendar := func(executor, strategy, table string) (cron.Calendar, int) {
		path := filepath.Join(t.TempDir(), "config.toml")
		head := "[[runners]]\nname = \"ci\"\ntoken = \"glrt-abcdefghijklmnopqrst\"\nexecutor = \"" + executor + "\"\n"
		require.NoError(t, os.WriteFile(path, []byte(head+strategy+table), 0o600))
		cfg, err := config.Load([]string{path})
		require.NoError(t, err)
		schedule, err := cfg.Runners[0].CapacitySchedule("")
		require.NoError(t, err)
		return cron.Calendar{Schedule: schedule}, cfg.Runners[0].Kubernetes.Autoscaler.MaxPausePods
	}
	theirs, most := calendar("custom", "[runners.kubernetes]\nidle_strategy = \"pause\"\nimage = \"job:1\"\n", blocks[0][1])
	ours, ourMost := calendar("kubernetes", "", blocks[1][1])
	require.Equal(t, most, ourMost)
	counts := map[int]bool{}
	for hour := range 7 * 24 {
		at := monday.Add(time.Duration(hour) * time.Hour)
		want := theirs.At(at)
		require.Equal(t, want.Values, ours.At(at).Values, "%s", at)
		counts[want.IdleCount] = true
	}
	require.Len(t, counts, 3, "both policies, and neither")
}
