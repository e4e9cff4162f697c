package pool

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestWhoeverFollowsIsToldWhenAPermissionIsBack, and not when nothing has changed, or for the worse.
func TestWhoeverFollowsIsToldWhenAPermissionIsBack(t *testing.T) {
	var lacking atomic.Value // a verb
	lacking.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		if json.NewDecoder(req.Body).Decode(&review) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb != lacking.Load()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	a := newAccess(Options{Client: client, LeaseNamespace: "ci", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}, []string{"ci"},
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "missing", Help: "Of this test."}))
	told := 0
	a.follow(func() { told++ })
	check := func(without string) []string {
		lacking.Store(without)
		require.NoError(t, a.check(t.Context()))
		return a.Missing()
	}
	require.Empty(t, check(""))
	require.Len(t, check("delete"), 2)
	require.Len(t, check("delete"), 2)
	require.Zero(t, told)
	require.Zero(t, a.restoredAt())
	require.Equal(t, []string{"list pods in namespace ci", "list configmaps in namespace ci"}, check("list"), "these are missing, and others back")
	require.Equal(t, 1, told)
	require.NotZero(t, a.restoredAt())
	require.Empty(t, check(""))
	require.Equal(t, 2, told)
	a.follow(nil)
	check("list")
	check("")
	require.Equal(t, 2, told)
}
