package capacity

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/internal/leases"
)

// metrics are what a Keeper counts. docs/capacity.md lists them; their names are an interface. Capacities are those of the
// configuration, so each label has few values. The runner is its name there, as in the metrics of pools.
type metrics struct {
	wanted      *prometheus.GaugeVec
	pods        *prometheus.GaugeVec
	jobs        *prometheus.GaugeVec
	trouble     *prometheus.GaugeVec
	preemptions *prometheus.HistogramVec
	writes      *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		labels := append([]string{labelNamespace, labelRunner, labelCapacity}, more...)
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		wanted:  gauge("idlecount_capacity_wanted", "Jobs for which room is wanted now."),
		pods:    gauge("idlecount_capacity_pods", "Pause pods by state: held (they have a node) or pending; of a buffer, jobs that its autoscaler provides for, or not yet.", "state"),
		jobs:    gauge("idlecount_capacity_jobs", "Jobs that run, by GitLab's labels."),
		trouble: gauge("idlecount_capacity_trouble", "1 while less is held than is wanted for this reason.", "reason"),
		preemptions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "idlecount_capacity_preemption_seconds", Help: "Time from a job's pod that had to preempt to its having the node.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{labelNamespace, labelRunner}),
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

const (
	labelNamespace = "namespace"
	labelRunner    = "runner"
	labelCapacity  = "capacity"
)

// show sets what a pass has found of a capacity.
func (m *metrics) show(p *part, r plan.Result, t *status.Trouble) {
	m.wanted.WithLabelValues(p.series()...).Set(float64(r.Wanted))
	m.pods.WithLabelValues(p.series("held")...).Set(float64(p.held))
	m.pods.WithLabelValues(p.series("pending")...).Set(float64(p.pending))
	m.jobs.WithLabelValues(p.series()...).Set(float64(p.have.Jobs))
	m.trouble.DeletePartialMatch(p.key.labels())
	if t != nil {
		m.trouble.WithLabelValues(p.series(string(t.Reason))...).Set(1)
	}
}

// series are the values of a capacity's labels, and of some more.
func (p *part) series(more ...string) []string {
	return append([]string{p.key.namespace, p.runner.Name, p.key.name}, more...)
}

// labels are those by which a capacity's series are found, whatever its runner is called by now.
func (k key) labels() prometheus.Labels {
	return prometheus.Labels{labelNamespace: k.namespace, labelCapacity: k.name}
}

// taken says that a capacity is left to other managers, and nothing else of it: what this one knew is old.
func (m *metrics) taken(p *part) {
	m.hide(p.key)
	m.trouble.WithLabelValues(p.series(leases.Taken)...).Set(1)
}

// hide takes away the figures of a capacity that is none of this manager's now.
func (m *metrics) hide(k key) {
	for _, g := range []*prometheus.GaugeVec{m.wanted, m.pods, m.jobs, m.trouble} {
		g.DeletePartialMatch(k.labels())
	}
}

func (m *metrics) wrote(operation string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(operation, result).Inc()
}
