package worker

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outlane/outlane/store"
)

// Metrics are a worker's numbers for Prometheus. docs/metrics.md describes each.
type Metrics struct {
	registry *prometheus.Registry

	events         *prometheus.CounterVec
	eventAge       *prometheus.HistogramVec
	publishSeconds *prometheus.HistogramVec
	fetchSeconds   prometheus.Histogram
	markSeconds    prometheus.Histogram
	batchEvents    prometheus.Histogram
	fetchEvents    prometheus.Histogram
	markEvents     prometheus.Histogram
	publishErrors  *prometheus.CounterVec
	databaseErrors *prometheus.CounterVec
	retries        *prometheus.CounterVec
	deadLetters    *prometheus.CounterVec
	parkedEvents   *prometheus.CounterVec
	handovers      *prometheus.CounterVec
	epochConflicts prometheus.Counter
	partitions     prometheus.Gauge
	owned          prometheus.Gauge
	streamUp       *prometheus.GaugeVec
	streamLosses   *prometheus.CounterVec

	waiting         *prometheus.GaugeVec
	lagSeconds      *prometheus.GaugeVec
	deadLettersOpen *prometheus.GaugeVec
	parkedOpen      *prometheus.GaugeVec
}

// NewMetrics makes the metrics in a registry of their own, together with those of the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	latency := prometheus.ExponentialBuckets(0.0005, 2, 16)
	sizes := []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outlane_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outlane_" + name, Help: help}, labels)
		m.registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "outlane_" + name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.events = counter("events_published_total", "Events that their stream acknowledged.", "stream")
	m.eventAge = histogram("event_age_seconds", "Time from an event's created_at to its acknowledgement.", prometheus.ExponentialBuckets(0.001, 2, 20), "stream")
	m.publishSeconds = histogram("publish_seconds", "Time of one publish, a batch.", latency, "stream")
	m.fetchSeconds = histogram("fetch_seconds", "Time of one fetch of a lane's rows.", latency).WithLabelValues().(prometheus.Histogram)
	m.markSeconds = histogram("mark_seconds", "Time of one mark statement.", latency).WithLabelValues().(prometheus.Histogram)
	m.batchEvents = histogram("publish_batch_events", "Events that one publish stored.", sizes).WithLabelValues().(prometheus.Histogram)
	m.fetchEvents = histogram("fetch_batch_events", "Rows that one fetch brought.", sizes).WithLabelValues().(prometheus.Histogram)
	m.markEvents = histogram("mark_batch_events", "Events that one statement marked.", sizes).WithLabelValues().(prometheus.Histogram)
	m.publishErrors = counter("publish_errors_total", "Publishes that ended early, by kind (outage, refused) and reason.", "stream", "kind", "reason")
	m.databaseErrors = counter("database_errors_total", "Statements that failed, by operation.", "operation")
	m.retries = counter("event_retries_total", "Refused events that are tried again.", "stream")
	m.deadLetters = counter("dead_letters_total", "Events given up on, by reason.", "stream", "reason")
	m.parkedEvents = counter("parked_events_total", "Events parked behind a dead letter of their key.", "stream")
	m.handovers = counter("partition_handovers_total", "Partitions claimed, released and lost.", "kind")
	m.epochConflicts = counter("epoch_conflicts_total", "Partitions stopped because their epoch had moved on.").WithLabelValues()
	m.partitions = gauge("partitions", "Partitions that the outbox has.").WithLabelValues()
	m.owned = gauge("partitions_owned", "Partitions that this worker has claimed.").WithLabelValues()
	m.streamUp = gauge("stream_up", "1 while a stream takes events, 0 while its lanes wait for it.", "stream")
	m.streamLosses = counter("stream_losses_total", "Times a stream was found behind what it had acknowledged.", "stream")
	m.waiting = gauge("lag_events", "Events of an owned lane that wait to be published; counted up to a limit of 10,000.", "stream", "partition")
	m.lagSeconds = gauge("lag_seconds", "Age of the oldest waiting event of an owned lane.", "stream", "partition")
	m.deadLettersOpen = gauge("dead_letters_open", "Dead letters of an owned lane that wait for a person.", "stream", "partition")
	m.parkedOpen = gauge("parked_events_open", "Events of an owned lane that wait behind a dead letter.", "stream", "partition")
	return m
}

// Registry is where the metrics are registered, for more to be added.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// watch registers what is read off w at each scrape.
func (m *Metrics) watch(w *Worker) {
	register := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outlane_" + name, Help: help}, func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return value()
		}))
	}
	register("horizon_age_seconds", "How long the oldest number that may still appear holds the cursors; 0 while nothing does.", func() float64 {
		if w.tracker.waiting() == 0 {
			return 0
		}
		return time.Since(w.horizonMoved).Seconds()
	})
	register("memory_bytes", "Bytes of payload held or reserved.", func() float64 { return float64(w.budget.used) })
	register("unmarked_batches", "Acknowledged batches that wait for their mark.", func() float64 {
		n := 0
		for _, p := range w.parts {
			n += p.marking
		}
		return float64(n)
	})
	register("database_up", "1 while Postgres answers.", func() float64 { return boolNumber(w.databaseDown == "" && w.phase == "") })
	register("nats_up", "1 while NATS is connected.", func() float64 { return boolNumber(w.brokerUp) })
}

func boolNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// setLag replaces the gauges of lag by lags, which are those of owned partitions.
func (m *Metrics) setLag(lags []store.LaneLag, now time.Time) {
	for _, g := range []*prometheus.GaugeVec{m.waiting, m.lagSeconds, m.deadLettersOpen, m.parkedOpen} {
		g.Reset()
	}
	for _, l := range lags {
		labels := []string{l.Lane.Stream, strconv.Itoa(l.Lane.Partition)}
		m.waiting.WithLabelValues(labels...).Set(float64(l.Events))
		age := 0.0
		if l.Events > 0 && !l.OldestCreatedAt.IsZero() {
			age = max(now.Sub(l.OldestCreatedAt).Seconds(), 0)
		}
		m.lagSeconds.WithLabelValues(labels...).Set(age)
		m.deadLettersOpen.WithLabelValues(labels...).Set(float64(l.DeadLetters))
		m.parkedOpen.WithLabelValues(labels...).Set(float64(l.Parked))
	}
}
