package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
)

// producers is how many connections insert at a steady rate: enough that one slow commit delays none of the others.
const producers = 32

// produced is one event: when it was to be inserted, and when its transaction had committed, as the producer saw it.
type produced struct{ due, committed time.Time }

// produce inserts events at a steady rate, each in a transaction of its own, at moments that are fixed beforehand: what is slow does not slow the
// rest down, and so is not left out. Events are numbered from first.
func (s *site) produce(ctx context.Context, pool *pgxpool.Pool, first, rate int, span time.Duration) ([]produced, error) {
	events := make([]produced, int(span.Seconds()*float64(rate)))
	began := time.Now().Add(5 * time.Millisecond)
	for i := range events {
		events[i].due = began.Add(time.Duration(i) * time.Second / time.Duration(rate))
	}
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex
		fault error
	)
	for range producers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(events) || ctx.Err() != nil {
					return
				}
				time.Sleep(time.Until(events[i].due))
				n := first + i
				_, err := pool.Exec(ctx, "INSERT INTO outbox_events (stream, topic, payload) VALUES ('S0', 'bench.0.event', $1)",
					fmt.Sprintf(`{"n": %d, "team_id": "t_%d", "text": "%s"}`, n, n%5000, latencyText))
				if err != nil {
					mu.Lock()
					fault = errors.Join(fault, err)
					mu.Unlock()
					return
				}
				events[i].committed = time.Now()
			}
		})
	}
	group.Wait()
	return events, fault
}

var latencyText = strings.Repeat("x", 160)

// storedAt reads when the events from first on were stored, each the first time.
func (s *site) storedAt(ctx context.Context, first, count int) ([]time.Time, error) {
	stream, err := s.js.Stream(ctx, streamName(0))
	if err != nil {
		return nil, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	times := make([]time.Time, count)
	for range stream.CachedInfo().State.Msgs {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(string(field(msg.Data(), `"n": `, ',')))
		if err != nil {
			return nil, fmt.Errorf("a message has no number: %.60q", msg.Data())
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		if i := n - first; i >= 0 && i < count && times[i].IsZero() {
			times[i] = meta.Timestamp
		}
	}
	return times, nil
}

// steady is what one run at a rate showed.
type steady struct {
	late                  []float64 // ms from commit to stored, sorted
	due                   []float64 // ms from when the insert was due to stored, sorted
	worker, postgres, bus float64   // CPU seconds per 1,000 events
}

const latencyPartitions = 64

// steadyRate runs a worker under a steady load.
func (l *lab) steadyRate(ctx context.Context, rate int, span time.Duration) (r steady, err error) {
	template, err := l.template(ctx, "latency", latencyPartitions, nil)
	if err != nil {
		return r, err
	}
	s, err := l.site(ctx, template, siteOptions{})
	if err != nil {
		return r, err
	}
	if err := s.startWorkers(ctx, 1); err != nil {
		return r, err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d&pool_min_conns=%d", s.url, producers, producers))
	if err != nil {
		return r, err
	}
	defer pool.Close()
	warm, err := s.produce(ctx, pool, 1, rate, time.Second)
	if err != nil {
		return r, err
	}
	before, err := s.usage()
	if err != nil {
		return r, err
	}
	events, err := s.produce(ctx, pool, 1+len(warm), rate, span)
	if err != nil {
		return r, err
	}
	if _, _, err := s.awaitStored(ctx, len(warm)+len(events)); err != nil {
		return r, err
	}
	after, err := s.usage()
	if err != nil {
		return r, err
	}
	used := after.since(before)
	thousands := float64(len(events)) / 1000
	r.worker, r.postgres, r.bus = used.worker/thousands, used.postgres/thousands, used.nats/thousands
	times, err := s.storedAt(ctx, 1+len(warm), len(events))
	if err != nil {
		return r, err
	}
	for i, e := range events {
		if times[i].IsZero() {
			return r, fmt.Errorf("event %d is missing", i)
		}
		r.late = append(r.late, milliseconds(times[i].Sub(e.committed)))
		r.due = append(r.due, milliseconds(times[i].Sub(e.due)))
	}
	slices.Sort(r.late)
	slices.Sort(r.due)
	return r, s.close(ctx)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// latency is section b.
func latency(ctx context.Context, l *lab) ([]Row, error) {
	rates := []int{100, 500, 2000}
	runs := make([][]steady, len(rates))
	for range l.repeats() {
		for i, rate := range rates {
			l.say("%s events/s", amount(rate))
			r, err := l.steadyRate(ctx, rate, pick(l, 500*time.Millisecond, 6*time.Second, 30*time.Second))
			if err != nil {
				return nil, fmt.Errorf("at %d events/s: %w", rate, err)
			}
			runs[i] = append(runs[i], r)
		}
	}
	targets := map[string]string{"500 p50": "≤ 2.5", "500 p99": "≤ 8", "2000 p99": "≤ 15", "500 worker": "≤ 0.2"}
	var rows []Row
	for i, rate := range rates {
		name := amount(rate) + " events/s: "
		add := func(what, unit, target string, of func(steady) float64, note string) {
			var samples []float64
			for _, r := range runs[i] {
				samples = append(samples, of(r))
			}
			r := row(name+what, unit, samples...).target(target)
			r.Note = note
			rows = append(rows, r)
		}
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1}} {
			var due []float64
			for _, r := range runs[i] {
				due = append(due, quantile(r.due, q.at))
			}
			add("commit → stored, "+q.name, "ms", targets[fmt.Sprintf("%d %s", rate, q.name)],
				func(r steady) float64 { return quantile(r.late, q.at) }, figure(median(due))+" ms from when the insert was due")
		}
		const unit = "CPU s / 1,000 events"
		add("worker", unit, targets[fmt.Sprintf("%d worker", rate)], func(r steady) float64 { return r.worker }, "")
		add("Postgres, inserts included", unit, "", func(r steady) float64 { return r.postgres }, "")
		add("NATS server", unit, "", func(r steady) float64 { return r.bus }, "")
	}
	l.say("first event after silence")
	silence, err := l.silence(ctx)
	if err != nil {
		return rows, err
	}
	return append(rows, silence), nil
}

// silence measures the first event after the pool has gone to sleep.
func (l *lab) silence(ctx context.Context) (Row, error) {
	template, err := l.template(ctx, "latency", latencyPartitions, nil)
	if err != nil {
		return Row{}, err
	}
	s, err := l.site(ctx, template, siteOptions{})
	if err != nil {
		return Row{}, err
	}
	if err := s.startWorkers(ctx, 1); err != nil {
		return Row{}, err
	}
	var late []float64
	for n := range pick(l, 2, 20, 20) {
		if err := s.asleep(ctx); err != nil {
			return Row{}, err
		}
		if n > 0 && l.opts.Size == Full {
			time.Sleep(time.Minute)
		}
		events, err := s.produce(ctx, s.db, n+1, 1, time.Second)
		if err != nil {
			return Row{}, err
		}
		_, last, err := s.awaitStored(ctx, n+1)
		if err != nil {
			return Row{}, err
		}
		if n > 0 { // the first is the stream's, which nobody knew
			late = append(late, milliseconds(last.Sub(events[0].committed)))
		}
	}
	slices.Sort(late)
	r := row("first event after silence: commit → stored, p50", "ms", median(late)).target("≤ 10").note("p99 %s ms, of %d", figure(quantile(late, 0.99)), len(late))
	return r, s.close(ctx)
}

// asleep waits until the pool wants to be woken by a notification.
func (s *site) asleep(ctx context.Context) error {
	return wait(ctx, "the pool to fall asleep", time.Minute, func() (asleep bool, err error) {
		err = s.db.QueryRow(ctx, "SELECT last_value = 2 FROM outlane_idle").Scan(&asleep)
		return asleep, err
	})
}
