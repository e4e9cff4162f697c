package pool

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/pool/plan"
)

// spent is a counter of pod-seconds: it grows with time by as many pods as there are. It is reckoned up when it is asked for,
// since a pool where nothing changes is looked at only every few minutes.
type spent struct {
	clock clock.PassiveClock
	desc  *prometheus.Desc

	mu       sync.Mutex
	accounts map[account]*balance
}

type account struct {
	series
	state plan.State
}

// balance is what was spent until a time, and how many pods there are since.
type balance struct {
	seconds float64
	pods    int
	since   time.Time
}

func newSpent(c clock.PassiveClock, name, help string, labels []string) *spent {
	return &spent{clock: c, desc: prometheus.NewDesc(name, help, labels, nil), accounts: map[account]*balance{}}
}

// at is what has been spent by a time; clocks that go back are waited for.
func (b balance) at(now time.Time) float64 {
	return b.seconds + float64(b.pods)*max(0, now.Sub(b.since).Seconds())
}

func (b *balance) change(now time.Time, pods int) {
	*b = balance{seconds: b.at(now), pods: pods, since: now}
}

// set notes how many pods there are of a pool, by state, from now on: no earlier, since what was told must never shrink.
func (s *spent) set(of series, pods map[plan.State]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for state, n := range pods {
		k := account{of, state}
		if s.accounts[k] == nil {
			s.accounts[k] = &balance{}
		}
		s.accounts[k].change(s.clock.Now(), n)
	}
}

// stop notes that a pool's pods are gone, or another manager's to count.
func (s *spent) stop(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, b := range s.accounts {
		if k.pool == pool {
			b.change(s.clock.Now(), 0)
		}
	}
}

// Describe implements prometheus.Collector.
func (s *spent) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *spent) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, b := range s.accounts {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, b.at(s.clock.Now()), k.with(string(k.state))...)
	}
}
