package pool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/capacity"
	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/status"
)

const (
	dashboardFile = "../examples/grafana-dashboard.json"
	alertsFile    = "../examples/alerts.yaml"
)

// dashboard is what the test reads of Grafana's model.
type dashboard struct {
	Title         string  `json:"title"`
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name       string          `json:"name"`
			Type       string          `json:"type"`
			Datasource source          `json:"datasource"`
			Definition string          `json:"definition"`
			Query      json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	GridPos     struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	Targets []struct {
		RefID      string `json:"refId"`
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
		Datasource source `json:"datasource"`
	} `json:"targets"`
}

// rules are a rule file of Prometheus with alerts.
type rules struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal(read(t, dashboardFile), &d))
	return d
}

func readAlerts(t *testing.T) []alert {
	t.Helper()
	var r rules
	require.NoError(t, yaml.UnmarshalStrict(read(t, alertsFile), &r))
	require.Len(t, r.Groups, 1)
	return r.Groups[0].Rules
}

// exported are the names that Prometheus sees of the manager's metrics, those of capacity too, and the labels of each.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	// Vectors have no names before they have values, so what they are goes by what is registered.
	described := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	r := registerer(func(c prometheus.Collector) {
		descriptions := make(chan *prometheus.Desc, 1)
		c.Describe(descriptions)
		d := described.FindStringSubmatch((<-descriptions).String())
		require.NotNil(t, d)
		name, labels := d[1], strings.FieldsFunc(d[2], func(r rune) bool { return r == ',' })
		switch c.(type) {
		case *prometheus.HistogramVec, prometheus.Histogram:
			found[name+"_bucket"] = append(slices.Clone(labels), "le")
			found[name+"_sum"], found[name+"_count"] = labels, labels
		default:
			found[name] = labels
		}
	})
	_, err := newMetrics(r, clock.RealClock{})
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(&rest.Config{})
	require.NoError(t, err)
	_, err = capacity.New(capacity.Options{Client: client, LeaseNamespace: "n", LeaseName: "l", Registry: r})
	require.NoError(t, err)
	return found
}

// checkQuery holds a query of PromQL to the metrics that there are: their names, the labels that are matched, and those that
// are grouped by. It returns the names.
func checkQuery(t *testing.T, have map[string][]string, query string) []string {
	t.Helper()
	var names []string
	grouped := regexp.MustCompile(`\bby \(([^)]*)\)`)
	// Of the labels that Prometheus adds, queries use these; namespace is the manager's there.
	labels := map[string]bool{"job": true, "instance": true, "pod": true, "namespace": true}
	for _, m := range regexp.MustCompile(`\b(idlecount_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(query, -1) {
		require.Contains(t, have, m[1], "no such metric: %s", query)
		names = append(names, m[1])
		for _, label := range have[m[1]] {
			labels[label] = true
		}
		for _, matched := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`).FindAllStringSubmatch(m[2], -1) {
			require.Contains(t, have[m[1]], matched[1], "%s has no such label: %s", m[1], query)
		}
	}
	require.NotEmpty(t, names, query)
	for _, m := range grouped.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			require.True(t, labels[strings.TrimSpace(label)], "no label %q: %s", label, query)
		}
	}
	require.Equal(t, strings.Count(query, "("), strings.Count(query, ")"), query)
	return names
}

// TestTheDashboardAsksForWhatThereIs: a panel that asks for a metric or a label that doesn't exist stays empty, and looks like
// a quiet day.
func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	have, d := exported(t), readDashboard(t)
	require.Equal(t, "idlecount", d.UID)
	require.Positive(t, d.SchemaVersion)
	variables := []string{"__range", "__rate_interval"}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			require.Equal(t, source{"prometheus", "${datasource}"}, v.Datasource, v.Name)
			checkQuery(t, have, v.Definition)
			require.Contains(t, string(v.Query), "label_values(")
		}
		variables = append(variables, v.Name)
	}
	require.Subset(t, variables, []string{"datasource", "namespace", "runner", "pool", "capacity"})

	ids, taken, asked := map[int]bool{}, map[[2]int]string{}, map[string]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s lies over another panel", p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, source{"prometheus", "${datasource}"}, p.Datasource, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.Equal(t, p.Datasource, target.Datasource, p.Title)
			require.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
			for _, name := range checkQuery(t, have, target.Expr) {
				asked[name] = true
			}
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				require.Contains(t, variables, v[1], "%s: no such variable", p.Title)
			}
			if group := regexp.MustCompile(`\bby \(([^)]*)\)`).FindStringSubmatch(target.Expr); group != nil {
				for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.Legend, -1) {
					require.Contains(t, group[1], l[1], "%s: the legend shows a label that the query drops", p.Title)
				}
			}
		}
	}
	for name := range have {
		if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		require.True(t, asked[name], "no panel shows %s", name)
	}
}

func TestTheAlertsAskForWhatThereIsAndSayWhatToDo(t *testing.T) {
	have := exported(t)
	manual := string(read(t, "../docs/controller.md"))
	for _, a := range readAlerts(t) {
		t.Run(a.Alert, func(t *testing.T) {
			checkQuery(t, have, a.Expr)
			_, err := time.ParseDuration(a.For)
			require.NoError(t, err)
			require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"])
			for _, key := range []string{"summary", "description", "runbook"} {
				require.NotEmpty(t, a.Annotations[key], key)
			}
			group := regexp.MustCompile(`\bby \(([^)]*)\)`).FindStringSubmatch(a.Expr)
			for _, text := range a.Annotations {
				for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					require.NotNil(t, group, text)
					require.Contains(t, group[1], l[1], "a text shows a label that the query drops")
				}
			}
			require.Contains(t, manual, "| `"+a.Alert+"` |")
			for _, reason := range map[string][]string{
				"IdlecountPoolShort": {
					string(status.ImagePull), string(status.Quota), string(status.Admission), string(status.Unschedulable), string(status.Crash),
					string(status.Config), string(status.Slow), string(status.Access), string(status.API), leases.Taken,
				},
				"IdlecountNoRoomForJobs": {
					string(capacitystatus.Priority), string(capacitystatus.Admission), string(capacitystatus.Buffer), string(capacitystatus.Access),
					string(capacitystatus.API), leases.Taken,
				},
				"IdlecountRoomAtLimit": {string(capacitystatus.Limit), string(capacitystatus.Quota)},
			}[a.Alert] {
				require.Regexp(t, "\\b"+reason+"[,:]", a.Annotations["runbook"], "what is to be done about it?")
			}
		})
	}
	require.Len(t, readAlerts(t), strings.Count(manual, "| `Idlecount"), "docs/controller.md has an alert that doesn't exist")
}

// TestPromtool lets Prometheus itself judge the alerts: that it reads them, and when they fire. Debian has promtool in its
// package prometheus.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not in the PATH, so nobody checks here when the alerts fire (Debian: apt-get install prometheus)")
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	queries, when := write("queries.yaml", queryRules(t)), write("when.yaml", read(t, "testdata/alerts.yaml"))
	write("alerts.yaml", withoutTexts(t))
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"check", "rules", queries}, {"test", "rules", when}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	}
}

// withoutTexts are the alerts without annotations.
func withoutTexts(t *testing.T) []byte {
	t.Helper()
	var r rules
	require.NoError(t, yaml.UnmarshalStrict(read(t, alertsFile), &r))
	for i := range r.Groups[0].Rules {
		r.Groups[0].Rules[i].Annotations = nil
	}
	text, err := yaml.Marshal(r)
	require.NoError(t, err)
	return text
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return text
}

// queryRules has the dashboard's queries in the form in which promtool reads queries: as rules.
func queryRules(t *testing.T) []byte {
	t.Helper()
	var list []map[string]string
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			query := strings.NewReplacer("$__range", "6h", "$__rate_interval", "5m").Replace(target.Expr)
			list = append(list, map[string]string{"record": fmt.Sprintf("panel_%d_%s", p.ID, target.RefID), "expr": query})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": list}}})
	require.NoError(t, err)
	return text
}
