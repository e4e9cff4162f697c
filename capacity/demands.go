package capacity

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
)

// Demand is a capacity that a configuration asks for, for those who find out beforehand whether it can be held.
type Demand struct {
	Runner   config.Runner
	Capacity factory.Capacity
	Schedule cron.Schedule
	Job      *corev1.Pod // what a quota counts of one job
	Buffered bool        // the cluster autoscaler holds it, and not pause pods
}

// Demands are the capacities of a configuration, as large as jobs are under the LimitRanges of each namespace.
func Demands(cfg *config.Config, ranges func(namespace string) []*corev1.LimitRange) ([]Demand, error) {
	found := specsOf(cfg, slog.New(slog.DiscardHandler))
	demands := make([]Demand, 0, len(found.all))
	for _, s := range found.all {
		s := specOf(s.runner, s.capacity.Image, ranges(s.key.namespace))
		if s.unknown != nil {
			return nil, s.unknown
		}
		demands = append(demands, Demand{Runner: s.runner, Capacity: s.capacity, Schedule: s.calendar.Schedule, Job: s.job, Buffered: s.buffered()})
	}
	return demands, nil
}
