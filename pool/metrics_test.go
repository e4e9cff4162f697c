package pool

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

// scraped are the lines that Prometheus reads whose names begin with a prefix, without those of buckets.
func scraped(t *testing.T, r *prometheus.Registry, prefix string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(r, &Health{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) && !strings.Contains(line, "_bucket{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

type metricsGround struct {
	*metrics
	registry *prometheus.Registry
	clock    *clocktesting.FakeClock
}

func newMetricsGround(t *testing.T) metricsGround {
	t.Helper()
	g := metricsGround{registry: prometheus.NewRegistry(), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	var err error
	g.metrics, err = newMetrics(g.registry, g.clock)
	require.NoError(t, err)
	return g
}

func TestAPoolIsShownAndHidden(t *testing.T) {
	g := newMetricsGround(t)
	g.show(series{"ci", "small", "p", "job:1"}, plan.Result{Wanted: 2, Counts: plan.Counts{Idle: 1}}, &plan.Shortfall{Reason: "Quota"})
	other := series{"nightly", "big", "q", "job:1"}
	g.show(other, plan.Result{Wanted: 7}, nil)
	require.Equal(t, []string{
		`idlecount_pods_wanted{image="job:1",namespace="ci",pool="p",runner="small"} 2`,
		`idlecount_pods_wanted{image="job:1",namespace="nightly",pool="q",runner="big"} 7`,
	}, scraped(t, g.registry, "idlecount_pods_wanted"))
	require.Equal(t, []string{`idlecount_pool_shortfall{image="job:1",namespace="ci",pool="p",reason="Quota",runner="small"} 1`},
		scraped(t, g.registry, "idlecount_pool_shortfall"))
	require.Contains(t, scraped(t, g.registry, "idlecount_pods{"), `idlecount_pods{image="job:1",namespace="ci",pool="p",runner="small",state="idle"} 1`)
	require.Contains(t, scraped(t, g.registry, "idlecount_claims_total"),
		`idlecount_claims_total{image="job:1",namespace="ci",pool="p",result="cold",runner="small"} 0`, "the first claim has to be an increase")

	g.show(series{"ci", "renamed", "p", "job:1"}, plan.Result{Wanted: 3}, nil)
	require.Equal(t, []string{
		`idlecount_pods_wanted{image="job:1",namespace="ci",pool="p",runner="renamed"} 3`,
		`idlecount_pods_wanted{image="job:1",namespace="nightly",pool="q",runner="big"} 7`,
	}, scraped(t, g.registry, "idlecount_pods_wanted"), "a pool is shown once")
	require.Empty(t, scraped(t, g.registry, "idlecount_pool_shortfall"))

	g.hide("p")
	g.hide("q")
	for _, name := range []string{"idlecount_pods_wanted", "idlecount_pods{", "idlecount_pool_shortfall"} {
		require.Empty(t, scraped(t, g.registry, name))
	}
}

// TestPodSecondsGrowWithTimeAlone: a pool where nothing changes is looked at every few minutes, and scraped more often.
func TestPodSecondsGrowWithTimeAlone(t *testing.T) {
	g := newMetricsGround(t)
	of := series{"ci", "small", "p", "job:1"}
	seconds := func(idle, warming string) {
		t.Helper()
		const name = `idlecount_pod_seconds_total{image="job:1",namespace="ci",pool="p",runner="small",state=`
		require.Equal(t, []string{name + `"idle"} ` + idle, name + `"warming"} ` + warming}, scraped(t, g.registry, "idlecount_pod_seconds_total"))
	}
	g.show(of, plan.Result{Counts: plan.Counts{Idle: 3, Warming: 1, Claimed: 50}}, nil)
	seconds("0", "0")
	g.clock.Step(10 * time.Second)
	seconds("30", "10")
	g.clock.Step(2 * time.Second)
	g.show(of, plan.Result{Counts: plan.Counts{Idle: 4}}, nil)
	seconds("36", "12")
	g.clock.Step(500 * time.Millisecond)
	seconds("38", "12")
	g.hide("p")
	g.clock.Step(time.Hour)
	seconds("38", "12")
	g.show(of, plan.Result{Counts: plan.Counts{Idle: 1}}, nil)
	g.clock.Step(time.Second)
	seconds("39", "12")
	g.clock.SetTime(g.clock.Now().Add(-time.Minute))
	seconds("38", "12")
}

func TestRefillsAreObservedUnlessNobodyRefills(t *testing.T) {
	g := newMetricsGround(t)
	of := series{"ci", "small", "p", "job:1"}
	full := plan.Result{Wanted: 2, Counts: plan.Counts{Idle: 2}}
	claim := func() {
		g.refills.claimed("p", g.clock.Now())
		g.clock.Step(3 * time.Second)
	}
	sum := `idlecount_refill_seconds_sum{image="job:1",namespace="ci",pool="p",runner="small"} `
	claim()
	g.refilled(of, g.clock.Now(), plan.Result{Wanted: 2, Counts: plan.Counts{Idle: 2, Expiring: 1}}, false)
	require.Empty(t, scraped(t, g.registry, "idlecount_refill_seconds"), "a pod that is about to end itself is none")
	g.refilled(of, g.clock.Now(), full, false)
	require.Contains(t, scraped(t, g.registry, "idlecount_refill_seconds"), sum+"3")
	claim()
	g.refilled(of, g.clock.Now(), full, true)
	g.refilled(of, g.clock.Now(), full, false)
	require.Contains(t, scraped(t, g.registry, "idlecount_refill_seconds"), sum+"3", "a paused pool")
	claim()
	g.hide("p")
	g.refilled(of, g.clock.Now(), full, false)
	require.Contains(t, scraped(t, g.registry, "idlecount_refill_seconds"), sum+"3", "another manager's refill")
}

// TestWhatTheWatchShowsIsCounted drives the handler as a watch does.
func TestWhatTheWatchShowsIsCounted(t *testing.T) {
	g := newMetricsGround(t)
	k := key{"ci", "p"}
	s := &setup{
		pools:   map[key]*pool{k: {key: k, runner: config.Runner{Name: "small"}, label: "abc", image: "job:1"}},
		runners: map[string]bool{"abc": true, "unpooled": true},
	}
	c := &controller{
		writer: &writer{expect: newExpectations(g.clock), metrics: g.metrics}, caches: newCaches(nil, nil), clock: g.clock,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
	}
	c.setup.Store(s)
	handler := c.podHandler()
	version := 0
	pod := func(uid, pool, runner, state string, ready bool) *corev1.Pod {
		version++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: uid, UID: "uid-1", ResourceVersion: string(rune('a' + version)), CreationTimestamp: metav1.NewTime(g.clock.Now()),
			Labels: map[string]string{factory.LabelPool: pool, factory.LabelRunner: runner, factory.LabelState: state},
		}}
		if ready {
			p.CreationTimestamp = metav1.NewTime(g.clock.Now().Add(-7 * time.Second))
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(g.clock.Now())}}
		}
		return p
	}
	ready := func() []string { return scraped(t, g.registry, "idlecount_pod_ready_seconds") }
	const readySeries = `{image="job:1",namespace="ci",pool="p",runner="small"} `

	warming := pod("one", "p", "abc", factory.StateIdle, false)
	handler.OnAdd(warming, false)
	g.clock.Step(300 * time.Millisecond)
	idle := pod("one", "p", "abc", factory.StateIdle, true)
	handler.OnUpdate(warming, idle)
	require.Equal(t, []string{"idlecount_pod_ready_seconds_sum" + readySeries + "0.3", "idlecount_pod_ready_seconds_count" + readySeries + "1"}, ready(),
		"by the watch, not by whole seconds")
	handler.OnUpdate(idle, pod("one", "p", "abc", factory.StateClaimed, true))
	require.Len(t, g.refills.pools["p"].at, 1)

	handler.OnAdd(warming, true)
	handler.OnUpdate(warming, pod("one", "p", "abc", factory.StateIdle, true))
	require.Equal(t, "idlecount_pod_ready_seconds_sum"+readySeries+"7.3", ready()[0], "older than this manager's term")

	handler.OnAdd(pod("two", "p", "abc", factory.StateClaimed, true), false)
	handler.OnAdd(pod("two", "p", "abc", factory.StateClaimed, true), true)
	handler.OnAdd(pod("three", "elsewhere", "abc", factory.StateClaimed, true), false)
	handler.OnAdd(pod("four", "elsewhere", "unpooled", factory.StateClaimed, true), false)
	handler.OnAdd(pod("five", "elsewhere", "whose", factory.StateClaimed, true), false)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ci/five", Obj: pod("five", "elsewhere", "whose", factory.StateClaimed, true)})
	require.Equal(t, []string{
		`idlecount_claims_total{image="job:1",namespace="ci",pool="p",result="cold",runner="small"} 1`,
		`idlecount_claims_total{image="job:1",namespace="ci",pool="p",result="warm",runner="small"} 1`,
		`idlecount_claims_total{image="other",namespace="ci",pool="none",result="cold",runner="none"} 1`,
		`idlecount_claims_total{image="other",namespace="ci",pool="none",result="cold",runner="small"} 1`,
		`idlecount_claims_total{image="other",namespace="ci",pool="none",result="cold",runner="unpooled"} 1`,
	}, scraped(t, g.registry, "idlecount_claims_total"))
	require.Len(t, g.refills.pools, 1, "a cold job takes no idle pod")
}
