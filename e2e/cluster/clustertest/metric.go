package clustertest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is the sum of a metric over the series that have all of the labels, given as name, value, name, value …; of a
// histogram, of its observations.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("gather the metrics: %v", err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, metric := range family.GetMetric() {
			have := map[string]string{}
			for _, l := range metric.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
