package pool_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool"
)

func TestBeforeItsStartAManagerIsAliveAndNotReady(t *testing.T) {
	h := pool.Handler(prometheus.NewRegistry(), &pool.Health{})
	for path, code := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK, "/": http.StatusNotFound} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, code, w.Code, path)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestWhatRunNeedsIsAskedFor(t *testing.T) {
	require.ErrorContains(t, pool.Run(t.Context(), pool.Options{}), "no client was given")
}

// TestMetricNames holds the names to Prometheus' rules, and the labels to the fixed set.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 1", kwok)
	m := g.manage(c)
	await(t, "the pool is full", func() bool { return m.metric("idlecount_pods", "state", "idle") == 1 })
	w := httptest.NewRecorder()
	pool.Handler(m.registry, m.health).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	allowed := map[string]bool{"namespace": true, "runner": true, "pool": true, "image": true, "state": true, "reason": true, "result": true, "operation": true}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				require.True(t, allowed[label.GetName()], "%s has a label %s", family.GetName(), label.GetName())
			}
		}
	}
}
