package pool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/pool/plan"
)

// The labels of metrics. Each has few values: those of the first four are the configuration's, the others are fixed sets.
const (
	labelNamespace = "namespace"
	labelRunner    = "runner"
	labelPoolName  = "pool"
	labelImage     = "image"
	labelState     = "state"
	labelReason    = "reason"
	labelResult    = "result"
	labelOperation = "operation"
)

// metrics are what the manager counts. docs/controller.md lists them; their names are an interface.
type metrics struct {
	leader    prometheus.Gauge
	missing   prometheus.Gauge
	reload    prometheus.Gauge
	reloadAt  prometheus.Gauge
	pods      *prometheus.GaugeVec
	wanted    *prometheus.GaugeVec
	shortfall *prometheus.GaugeVec
	created   *prometheus.CounterVec
	deleted   *prometheus.CounterVec
	claims    *prometheus.CounterVec
	ready     *prometheus.HistogramVec
	refill    *prometheus.HistogramVec
	spent     *spent
	writes    *prometheus.CounterVec
	errors    prometheus.Counter
	passes    prometheus.Histogram

	refills *refills
	shown   map[string]series // what show has set, by pool; the worker's alone
}

func newMetrics(r prometheus.Registerer, now clock.PassiveClock) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	ofPool := func(more ...string) []string { return append(seriesLabels(), more...) }
	times := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600},
		}, ofPool())
	}
	m := &metrics{
		leader:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_leader", Help: "1 where this manager leads, 0 where it stands by."}),
		missing:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_permissions_missing", Help: "Permissions that the manager needs and doesn't have."}),
		reload:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_config_last_reload_successful", Help: "1 where the configuration file as it is now is in force, 0 where it can't be used and the one before is."}),
		reloadAt:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was taken over."}),
		pods:      gauge("idlecount_pods", "Pods of a pool by state.", ofPool(labelState)...),
		wanted:    gauge("idlecount_pods_wanted", "Idle pods that a pool wants now.", ofPool()...),
		shortfall: gauge("idlecount_pool_shortfall", "1 while a pool has fewer idle pods than it wants for this reason.", ofPool(labelReason)...),
		created:   counter("idlecount_pods_created_total", "Creates of idle pods; result is ok or why the API server refused.", ofPool(labelResult)...),
		deleted:   counter("idlecount_pods_deleted_total", "Deletes of pods by reason.", ofPool(labelReason)...),
		claims:    counter("idlecount_claims_total", "Jobs that got a pod, as the manager saw it: warm (it was idle), warming, or cold (made for the job).", ofPool(labelResult)...),
		ready:     times("idlecount_pod_ready_seconds", "Time from an idle pod's creation to its readiness, both as the manager's watch shows them."),
		refill:    times("idlecount_refill_seconds", "Time from a claim until its pool has as many ready idle pods as it wants again, but for those that later claims have taken."),
		spent:     newSpent(now, "idlecount_pod_seconds_total", "Seconds that a pool's unclaimed pods have existed, by state: what keeping them costs.", ofPool(labelState)),
		writes:    counter("idlecount_api_writes_total", "Writes to the Kubernetes API, but for the lease and events.", labelOperation, labelResult),
		errors:    prometheus.NewCounter(prometheus.CounterOpts{Name: "idlecount_reconcile_errors_total", Help: "Passes over a pool that failed and are repeated."}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idlecount_reconcile_seconds", Help: "Duration of passes over a pool, with their writes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		refills: newRefills(), shown: map[string]series{},
	}
	for _, c := range []prometheus.Collector{
		m.leader, m.missing, m.reload, m.reloadAt, m.pods, m.wanted, m.shortfall, m.created, m.deleted, m.claims, m.ready, m.refill, m.spent,
		m.writes, m.errors, m.passes,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// show sets what a pass has found of a pool.
func (m *metrics) show(of series, r plan.Result, short *plan.Shortfall) {
	if was, ok := m.shown[of.pool]; ok && was != of {
		m.hide(of.pool) // its runner has another name now
	}
	m.shown[of.pool] = of
	for state, n := range map[plan.State]int{
		plan.Warming: r.Counts.Warming, plan.Idle: r.Counts.Idle, plan.Claimed: r.Counts.Claimed, plan.Expired: r.Counts.Expired,
		plan.Failed: r.Counts.Failed, plan.Finished: r.Counts.Finished, plan.Ending: r.Counts.Ending,
	} {
		m.pods.WithLabelValues(of.with(string(state))...).Set(float64(n))
	}
	m.wanted.WithLabelValues(of.with()...).Set(float64(r.Wanted))
	m.shortfall.DeletePartialMatch(prometheus.Labels{labelPoolName: of.pool})
	if short != nil {
		m.shortfall.WithLabelValues(of.with(short.Reason)...).Set(1)
	}
	for _, result := range claimResults() { // a counter that begins with 1 has no increase that Prometheus could see
		m.claims.WithLabelValues(of.with(result)...)
	}
	m.spent.set(of, map[plan.State]int{plan.Idle: r.Counts.Idle, plan.Warming: r.Counts.Warming})
}

// refilled observes the claims that a pass, which began at a time, has found made good. forget is set where nobody is to
// replace what was claimed.
func (m *metrics) refilled(of series, at time.Time, r plan.Result, forget bool) {
	missing := max(0, r.Wanted-(r.Counts.Idle-r.Counts.Expiring))
	if forget {
		m.refills.forget(of.pool)
	}
	for _, took := range m.refills.settle(of.pool, at, r.Wanted, missing) {
		m.refill.WithLabelValues(of.with()...).Observe(took.Seconds())
	}
}

// hide takes back what show has set: the pool is gone, or another manager leads and shows it. Counters stay. A pool's name
// says of which namespace it is, for the shape does.
func (m *metrics) hide(pool string) {
	of := prometheus.Labels{labelPoolName: pool}
	m.pods.DeletePartialMatch(of)
	m.wanted.DeletePartialMatch(of)
	m.shortfall.DeletePartialMatch(of)
	m.spent.stop(pool)
	m.refills.forget(pool)
	delete(m.shown, pool)
}

// wrote counts a write; result is ok, or the API server's reason.
func (m *metrics) wrote(operation, result string) {
	m.writes.WithLabelValues(operation, result).Inc()
}

// reloaded notes that a configuration was taken over, notReloaded that one couldn't be.
func (m *metrics) reloaded(at time.Time) {
	m.reload.Set(1)
	m.reloadAt.Set(float64(at.Unix()))
}

func (m *metrics) notReloaded() { m.reload.Set(0) }

func (m *metrics) passed(took time.Duration) { m.passes.Observe(took.Seconds()) }
