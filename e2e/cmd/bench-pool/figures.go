package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/e2e/chaos/proxy"
	"idlecount.dev/idlecount/e2e/timing"
)

// rate is how fast pods were made, from the first that was seen.
type rate struct {
	pods           int
	created, ready time.Duration // from the first pod's creation to the last one's, and to the last one's readiness
}

// rateOf is the rate of pods that were made in one go, sorted by creation.
func rateOf(lives []life) rate {
	if len(lives) == 0 {
		return rate{}
	}
	r := rate{pods: len(lives)}
	first := lives[0].created
	for _, l := range lives {
		r.created, r.ready = max(r.created, l.created.Sub(first)), max(r.ready, l.ready.Sub(first))
	}
	return r
}

// sum is the rate over several goes.
func sum(rates []rate) rate {
	var s rate
	for _, r := range rates {
		s.pods, s.created, s.ready = s.pods+r.pods, s.created+r.created, s.ready+r.ready
	}
	return s
}

func (r rate) createdPerSecond() float64 { return float64(r.pods) / r.created.Seconds() }
func (r rate) readyPerSecond() float64   { return float64(r.pods) / r.ready.Seconds() }

// lags is, for each claimed pod, how long until its replacement was created and ready: the first claim in a pool goes with
// the first pod that is created in it, and so on. It is an error if there are not as many of one as of the other.
func lags(claimed, made []life) (created, ready []time.Duration, err error) {
	replacements := map[string][]life{}
	for _, l := range made {
		replacements[l.pool] = append(replacements[l.pool], l)
	}
	for _, l := range claimed {
		if len(replacements[l.pool]) == 0 {
			return nil, nil, fmt.Errorf("%d pods were claimed and %d made: one claimed in pool %s has no replacement", len(claimed), len(made), l.pool)
		}
		next := replacements[l.pool][0]
		replacements[l.pool] = replacements[l.pool][1:]
		created, ready = append(created, next.created.Sub(l.claimed)), append(ready, next.ready.Sub(l.claimed))
	}
	if len(made) != len(claimed) {
		return nil, nil, fmt.Errorf("%d pods were claimed and %d made", len(claimed), len(made))
	}
	return created, ready, nil
}

// figures are what one run measured.
type figures struct {
	size           size
	bare, manager  []rate
	burst          time.Duration // from the first claim to the last
	created, ready []time.Duration
	full, restart  fleet.Usage // of the manager that has filled the pools, and of one that was started with them full
	cpu            time.Duration
	requests       map[proxy.Request]int
}

func (f figures) print(w io.Writer) {
	bare, manager := sum(f.bare), sum(f.manager)
	fmt.Fprintf(w, "%d idle pods in %d pools\n\n", f.size.pods(), f.size.pools)
	fmt.Fprintln(w, "pods a second    created  ready")
	row := func(name string, r rate) {
		fmt.Fprintf(w, "%-15s  %7.0f  %5.0f\n", name, r.createdPerSecond(), r.readyPerSecond())
	}
	row("plain creates", bare)
	row("the manager", manager)
	fmt.Fprintf(w, "%-15s  %6.0f%%  %4.0f%%   (wanted: at least 80%%)\n", "of plain", 100*manager.createdPerSecond()/bare.createdPerSecond(), 100*manager.readyPerSecond()/bare.readyPerSecond())
	fmt.Fprintf(w, "by round         ")
	for i := range f.bare {
		fmt.Fprintf(w, " %.0f/%.0f", f.manager[i].createdPerSecond(), f.bare[i].createdPerSecond())
	}
	fmt.Fprintf(w, " created\n\n%d claims in %.1f s; from a claim until its replacement is\n", len(f.created), f.burst.Seconds())
	for _, lag := range []struct {
		name  string
		times []time.Duration
	}{{"created", f.created}, {"ready", f.ready}} {
		fmt.Fprintf(w, "%-15s  %5.0f ms median  %5.0f ms p90\n", lag.name, timing.Milliseconds(timing.Quantile(lag.times, 0.5)), timing.Milliseconds(timing.Quantile(lag.times, 0.9)))
	}
	fmt.Fprintf(w, "\nthe manager with %d idle pods\n", f.size.pods())
	fmt.Fprintf(w, "memory           %3d MB resident after filling the pools, %d MB at most   (wanted: at most 150 MB)\n", mb(f.full.RSS), mb(f.full.Peak))
	fmt.Fprintf(w, "                 %3d MB after a start with full pools, %d MB at most\n", mb(f.restart.RSS), mb(f.restart.Peak))
	fmt.Fprintf(w, "CPU              %.2f%% of a core while nothing changes   (wanted: under 2%%)\n", 100*f.cpu.Seconds()/f.size.quiet.Seconds())
	fmt.Fprintf(w, "API requests     %s   (wanted: no write but the lease)\n", perMinute(f.requests, f.size.quiet))
}

func mb(bytes int64) int64 { return bytes / 1_000_000 }

// perMinute lists requests by kind.
func perMinute(requests map[proxy.Request]int, over time.Duration) string {
	var kinds []string
	for kind, n := range requests {
		if n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s %.0f a minute", kind.Verb, kind.Resource, float64(n)/over.Minutes()))
		}
	}
	if len(kinds) == 0 {
		return "none"
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}
