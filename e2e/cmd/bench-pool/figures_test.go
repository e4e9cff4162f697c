package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/e2e/chaos/proxy"
)

func after(ms int) time.Time {
	return time.Date(2026, 3, 2, 12, 0, 0, ms*int(time.Millisecond), time.UTC)
}

func TestRates(t *testing.T) {
	r := rateOf([]life{{created: after(0), ready: after(900)}, {created: after(100), ready: after(400)}, {created: after(500), ready: after(800)}})
	require.Equal(t, rate{3, 500 * time.Millisecond, 900 * time.Millisecond}, r)
	s := sum([]rate{r, {pods: 7, created: 500 * time.Millisecond, ready: 1100 * time.Millisecond}})
	require.InDelta(t, 10, s.createdPerSecond(), 1e-9)
	require.InDelta(t, 5, s.readyPerSecond(), 1e-9)
	require.Equal(t, rate{}, rateOf(nil))
}

func TestLagsPairClaimsAndReplacementsOfAPool(t *testing.T) {
	claimed := []life{{pool: "a", claimed: after(0)}, {pool: "b", claimed: after(10)}, {pool: "a", claimed: after(20)}}
	made := []life{{pool: "a", created: after(100), ready: after(200)}, {pool: "a", created: after(150), ready: after(260)}, {pool: "b", created: after(300), ready: after(310)}}
	created, ready, err := lags(claimed, made)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{100 * time.Millisecond, 290 * time.Millisecond, 130 * time.Millisecond}, created)
	require.Equal(t, []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 240 * time.Millisecond}, ready)

	_, _, err = lags(claimed, made[:2])
	require.ErrorContains(t, err, "pool b has no replacement")
	_, _, err = lags(claimed[:2], made)
	require.ErrorContains(t, err, "2 pods were claimed and 3 made")
}

func TestFiguresSayWhatWasMeasured(t *testing.T) {
	var out strings.Builder
	figures{
		size:    size{pools: 2, perPool: 50, quiet: time.Minute},
		bare:    []rate{{100, time.Second, 2 * time.Second}},
		manager: []rate{{100, 2 * time.Second, 4 * time.Second}},
		created: []time.Duration{time.Second}, ready: []time.Duration{2 * time.Second},
		full: fleet.Usage{RSS: 90e6, Peak: 120e6}, restart: fleet.Usage{RSS: 80e6, Peak: 110e6}, cpu: 600 * time.Millisecond,
		requests: map[proxy.Request]int{{Verb: "PUT", Resource: "leases"}: 30, {Verb: "GET", Resource: "pods"}: 0},
	}.print(&out)
	for _, want := range []string{
		"100 idle pods in 2 pools", "plain creates        100     50", "of plain             50%    50%", "created           1000 ms median",
		"90 MB resident after filling the pools, 120 MB at most", "1.00% of a core", "PUT leases 30 a minute   (wanted",
	} {
		require.Contains(t, out.String(), want)
	}
}
