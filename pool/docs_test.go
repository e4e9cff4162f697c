package pool

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/internal/rights"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// TestTheDocumentNamesAll: permissions, metrics, reasons and events are interfaces, and docs/controller.md describes them.
func TestTheDocumentNamesAll(t *testing.T) {
	content, err := os.ReadFile("../docs/controller.md")
	require.NoError(t, err)
	doc := string(content)

	row := func(where string, p rights.Permission) string {
		group := p.APIGroups[0]
		if group == "" {
			group = "core"
		}
		return "| " + strings.Join([]string{where, group, p.Resources[0], strings.Join(p.Verbs, ", "), p.Why}, " | ") + " |"
	}
	for _, p := range Permissions() {
		require.Contains(t, doc, row("pools", p))
	}
	for _, p := range LeasePermissions() {
		require.Contains(t, doc, row("lease", p))
	}

	described := make(chan *prometheus.Desc, 100)
	m, err := newMetrics(registerer(func(c prometheus.Collector) { c.Describe(described) }), clock.RealClock{})
	require.NoError(t, err)
	require.NotNil(t, m)
	close(described)
	count := 0
	for d := range described {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		require.Contains(t, doc, "| `"+name+"` |")
		count++
	}
	require.Equal(t, strings.Count(doc, "| `idlecount_"), count, "the document has a metric that doesn't exist")

	for _, reason := range []status.Reason{
		status.ImagePull, status.Quota, status.Admission, status.Unschedulable, status.Crash, status.Config, status.Slow,
		status.Limit, status.Access, status.API, leases.Taken,
	} {
		require.Contains(t, doc, "`"+string(reason)+"`")
	}
	for _, event := range []string{eventShortfall, eventRecovered, eventPolicyChanged, eventPodFailed, eventRemoved, eventReplaced, eventDeadline, eventConfigBroken, eventConfigMended, eventTaken} {
		require.Contains(t, doc, "`"+event+"`")
	}
	deletes := []string{}
	for _, reason := range []plan.Reason{
		plan.DeleteExpired, plan.DeleteFailed, plan.DeleteLost, plan.DeleteDeadline, plan.DeleteFinished, plan.DeleteOverdue,
		plan.DeleteBlocked, plan.DeleteStuck, plan.DeleteSurplus, plan.DeleteLimit, plan.DeleteReplaced, plan.DeleteDrained,
		plan.DeleteRemoved,
	} {
		deletes = append(deletes, string(reason))
	}
	require.Contains(t, doc, strings.Join(deletes, ", "))
}

// registerer sees what is registered.
type registerer func(prometheus.Collector)

func (r registerer) Register(c prometheus.Collector) error { r(c); return nil }
func (r registerer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		r(c)
	}
}
func (r registerer) Unregister(prometheus.Collector) bool { return false }
