package capacity

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/internal/leases"
)

// metrics are what a Keeper counts. docs/capacity.md lists them; their names are an interface. Capacities are those of the
// configuration, so each label has few values.
type metrics struct {
	wanted      *prometheus.GaugeVec
	pods        *prometheus.GaugeVec
	jobs        *prometheus.GaugeVec
	trouble     *prometheus.GaugeVec
	preemptions *prometheus.HistogramVec
	writes      *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		wanted:  gauge("idlecount_capacity_wanted", "Jobs for which room is wanted now.", "capacity"),
		pods:    gauge("idlecount_capacity_pods", "Pause pods by state: held (they have a node) or pending; of a buffer, jobs that its autoscaler provides for, or not yet.", "capacity", "state"),
		jobs:    gauge("idlecount_capacity_jobs", "Jobs that run, by GitLab's labels.", "capacity"),
		trouble: gauge("idlecount_capacity_trouble", "1 while less is held than is wanted for this reason.", "capacity", "reason"),
		preemptions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "idlecount_capacity_preemption_seconds", Help: "Time from a job's pod that had to preempt to its having the node.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"runner"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idlecount_capacity_writes_total", Help: "Writes to the Kubernetes API.",
		}, []string{"operation", "result"}),
	}
	for _, c := range []prometheus.Collector{m.wanted, m.pods, m.jobs, m.trouble, m.preemptions, m.writes} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// show sets what a pass has found of a capacity.
func (m *metrics) show(name string, r plan.Result, held, pending, jobs int, t *status.Trouble) {
	m.wanted.WithLabelValues(name).Set(float64(r.Wanted))
	m.pods.WithLabelValues(name, "held").Set(float64(held))
	m.pods.WithLabelValues(name, "pending").Set(float64(pending))
	m.jobs.WithLabelValues(name).Set(float64(jobs))
	m.trouble.DeletePartialMatch(prometheus.Labels{"capacity": name})
	if t != nil {
		m.trouble.WithLabelValues(name, string(t.Reason)).Set(1)
	}
}

// taken says that a capacity is left to other managers, and nothing else of it: what this one knew is old.
func (m *metrics) taken(name string) {
	m.hide(name)
	m.trouble.WithLabelValues(name, leases.Taken).Set(1)
}

// hide takes away the figures of a capacity that is none of this manager's now.
func (m *metrics) hide(name string) {
	for _, g := range []*prometheus.GaugeVec{m.wanted, m.pods, m.jobs, m.trouble} {
		g.DeletePartialMatch(prometheus.Labels{"capacity": name})
	}
}

func (m *metrics) wrote(operation string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(operation, result).Inc()
}
