package pool

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what a running manager says of itself. The zero value is that of one that hasn't started. It may be used by
// several goroutines.
type Health struct {
	mu    sync.Mutex
	alive func() error
	ready func() []string
}

// set is called once, by Run.
func (h *Health) set(alive func() error, ready func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive, h.ready = alive, ready
}

func (h *Health) checks() (alive func() error, ready func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alive, h.ready
}

// Handler serves what Kubernetes and Prometheus ask of a manager: /healthz fails where the process should be restarted,
// /readyz where it can't do its work and says why, one reason a line, and /metrics has what the gatherer has.
func Handler(g prometheus.Gatherer, h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// Before the start there is nothing that a restart would make better.
		if alive, _ := h.checks(); alive != nil {
			if err := alive(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok") // nobody is left to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := []string{"starting"}
		if _, ready := h.checks(); ready != nil {
			reasons = ready()
		}
		if len(reasons) > 0 {
			http.Error(w, strings.Join(reasons, "\n"), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // nobody is left to tell
	})
	return mux
}
