package cmd

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flinkndb/flinkndb/server/lineage"
)

// readiness says whether the server takes sessions.
type readiness struct{ ready atomic.Bool }

func (r *readiness) set(ready bool) { r.ready.Store(ready) }

// newHealth makes the HTTP endpoint; without an address it does nothing.
func newHealth(address string, registry *prometheus.Registry, l *lineage.Lineage) *health {
	h := &health{state: &readiness{}}
	if address == "" {
		return h
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !h.state.ready.Load() {
			text(w, http.StatusServiceUnavailable, "not ready: starting or draining")
			return
		}
		if _, err := l.StoreBytes(r.Context()); err != nil {
			text(w, http.StatusServiceUnavailable, "not ready: the store does not answer")
			return
		}
		text(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	h.server = &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return h
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write([]byte(body + "\n"))
}
