package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outlane/outlane/store"
)

// lagLimit is how many waiting events of a lane are counted for the metrics.
const lagLimit = 10_000

// Ready says whether the worker can do its work now, and if not, why not.
func (w *Worker) Ready() (bool, []string) {
	connected, reason := w.cfg.Broker.Connected()
	w.mu.Lock()
	manager := w.manager
	w.mu.Unlock()
	var leases error
	if manager != nil {
		leases = manager.Status().Err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var why []string
	if w.phase != "" {
		why = append(why, "worker: "+w.phase)
	}
	if w.databaseDown != "" {
		why = append(why, "postgres: "+w.databaseDown)
	}
	if !connected {
		why = append(why, "nats: "+reason)
	}
	if leases != nil {
		why = append(why, "leases: "+leases.Error())
	}
	return len(why) == 0, why
}

// Handler serves /livez, /readyz and /metrics.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		ready, why := w.Ready()
		rw.Header().Set("Content-Type", "application/json")
		if !ready {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(rw).Encode(struct {
			Ready   bool     `json:"ready"`
			Reasons []string `json:"reasons,omitempty"`
		}{ready, why})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.cfg.Metrics.registry, promhttp.HandlerOpts{Registry: w.cfg.Metrics.registry}))
	return mux
}

// stopping are the operations without which nothing is delivered.
var stopping = []string{"start", "open", "poll"}

// databaseFailedLocked is databaseFailed for callers that do not hold the pool's lock, and know that the database as such does not answer.
func (w *Worker) databaseFailedLocked(operation string, err error) {
	if w.work.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.databaseFailed(operation, err)
	stops := slices.Contains(stopping, operation)
	if !store.IsUnavailable(err) && w.failing[operation] != err.Error() {
		w.failing[operation] = err.Error()
		w.log.Error("statement fails", "operation", operation, "error", err, "delivery_waits", stops)
	}
	if !stops {
		return
	}
	if w.databaseDown == "" && store.IsUnavailable(err) {
		w.log.Warn("Postgres does not answer; delivery waits", "operation", operation, "error", err)
	}
	w.databaseDown = err.Error()
}

// databaseFailed counts a failed statement.
func (w *Worker) databaseFailed(operation string, _ error) {
	w.cfg.Metrics.databaseErrors.WithLabelValues(operation).Inc()
}

// databaseWorks notes that Postgres answers.
func (w *Worker) databaseWorks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.databaseDown != "" {
		w.databaseDown = ""
		for _, operation := range stopping {
			delete(w.failing, operation)
		}
		w.log.Info("Postgres answers again")
	}
}

// measurer measures the lag of the owned lanes until ctx ends.
func (w *Worker) measurer(ctx context.Context) {
	for ctx.Err() == nil {
		w.wait(ctx, w.cfg.LagInterval)
		lags, err := w.cfg.Database.Lag(ctx, lagLimit)
		if err != nil {
			w.databaseFailedLocked("lag", err)
			continue
		}
		w.mu.Lock()
		owned := lags[:0]
		for _, l := range lags {
			if p := w.parts[l.Lane.Partition]; p != nil && p.state == partActive {
				owned = append(owned, l)
			}
		}
		w.mu.Unlock()
		w.cfg.Metrics.setLag(owned, time.Now())
	}
}
