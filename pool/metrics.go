package pool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"idlecount.dev/idlecount/pool/plan"
)

// The labels of metrics. Each has few values: pools and images are those of the configuration, the others are fixed sets.
const (
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
	writes    *prometheus.CounterVec
	errors    prometheus.Counter
	passes    prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		leader:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_leader", Help: "1 where this manager leads, 0 where it stands by."}),
		missing:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_permissions_missing", Help: "Permissions that the manager needs and doesn't have."}),
		reload:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_config_last_reload_successful", Help: "1 where the configuration file as it is now is in force, 0 where it can't be used and the one before is."}),
		reloadAt:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "idlecount_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was taken over."}),
		pods:      gauge("idlecount_pods", "Pods of a pool by state.", labelPoolName, labelImage, labelState),
		wanted:    gauge("idlecount_pods_wanted", "Idle pods that a pool wants now.", labelPoolName, labelImage),
		shortfall: gauge("idlecount_pool_shortfall", "1 while a pool has fewer idle pods than it wants for this reason.", labelPoolName, labelImage, labelReason),
		created:   counter("idlecount_pods_created_total", "Creates of idle pods; result is ok or why the API server refused.", labelPoolName, labelImage, labelResult),
		deleted:   counter("idlecount_pods_deleted_total", "Deletes of pods by reason.", labelPoolName, labelImage, labelReason),
		claims:    counter("idlecount_claims_total", "Jobs that got a pod, as the manager saw it: warm (it was idle), warming, or cold (made for the job).", labelPoolName, labelImage, labelResult),
		ready: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "idlecount_pod_ready_seconds", Help: "Time from an idle pod's creation to its readiness.",
			Buckets: []float64{0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600},
		}, []string{labelPoolName, labelImage}),
		writes: counter("idlecount_api_writes_total", "Writes to the Kubernetes API, but for the lease and events.", labelOperation, labelResult),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "idlecount_reconcile_errors_total", Help: "Passes over a pool that failed and are repeated."}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idlecount_reconcile_seconds", Help: "Duration of passes over a pool, with their writes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
	}
	for _, c := range []prometheus.Collector{
		m.leader, m.missing, m.reload, m.reloadAt, m.pods, m.wanted, m.shortfall, m.created, m.deleted, m.claims, m.ready, m.writes, m.errors, m.passes,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// show sets what a pass has found of a pool.
func (m *metrics) show(pool, image string, r plan.Result, short *plan.Shortfall) {
	for state, n := range map[plan.State]int{
		plan.Warming: r.Counts.Warming, plan.Idle: r.Counts.Idle, plan.Claimed: r.Counts.Claimed, plan.Expired: r.Counts.Expired,
		plan.Failed: r.Counts.Failed, plan.Finished: r.Counts.Finished, plan.Ending: r.Counts.Ending,
	} {
		m.pods.WithLabelValues(pool, image, string(state)).Set(float64(n))
	}
	m.wanted.WithLabelValues(pool, image).Set(float64(r.Wanted))
	m.shortfall.DeletePartialMatch(prometheus.Labels{labelPoolName: pool})
	if short != nil {
		m.shortfall.WithLabelValues(pool, image, short.Reason).Set(1)
	}
}

// hide takes back what show has set: the pool is gone, or another manager leads and shows it. Counters stay.
func (m *metrics) hide(pool string) {
	of := prometheus.Labels{labelPoolName: pool}
	m.pods.DeletePartialMatch(of)
	m.wanted.DeletePartialMatch(of)
	m.shortfall.DeletePartialMatch(of)
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
