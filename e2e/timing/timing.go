// Package timing is the arithmetic on durations that the benchmarks and the demo have in common.
package timing

import (
	"slices"
	"time"
)

// Milliseconds is a duration as they show it.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// Quantile is the nearest-rank quantile of durations, in any order; 0 for none.
func Quantile(durations []time.Duration, q float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
