// Package bench measures how fast a pool of workers drains a backlog, beside the usual thing in the same run: pollers that take rows by
// FOR UPDATE SKIP LOCKED and publish them.
//
// What it promises: both sides get the same events, the same Postgres and the same NATS server, one after the other, and are measured the
// same way, from the first stored message to the last by the server's clock; what is out of order is counted on both sides. What it does
// not promise: figures for another machine. Everything shares the cores, and Postgres runs without fsync.
package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/sandbox"
)

// Options say how much to do. Zero values take what Defaults says.
type Options struct {
	// Program is the outlane executable that the workers run.
	Program string
	// Events is the size of the backlog, Keys how many partition keys it has, and Payload the bytes of text in each payload.
	Events, Keys, Payload int
	Partitions, Workers   int
	// Pollers are the numbers of pollers to compare with.
	Pollers []int
	// Progress, if not nil, is told what happens now.
	Progress func(text string)
}

// Defaults are the options of `outlane bench`.
func Defaults() Options {
	return Options{Events: 50_000, Keys: 500, Payload: 100, Partitions: 64, Workers: 2, Pollers: []int{1, 8}}
}

// Result is one side of the comparison.
type Result struct {
	Name    string  `json:"name"`
	Events  int     `json:"events"`
	Seconds float64 `json:"seconds"`
	// Rate is in events per second.
	Rate float64 `json:"rate"`
	// OutOfOrder counts events stored behind a later one of their key.
	OutOfOrder int `json:"out_of_order"`
	// Stored counts messages: more than Events if some were stored twice.
	Stored int `json:"stored"`
}

const (
	poolStream = "POOL"
	// drainPatience is how long one side may take.
	drainPatience = 5 * time.Minute
	lookEvery     = 50 * time.Millisecond
)

// Run makes the backlog for each side and has it drained. It returns the pool's result first.
func Run(ctx context.Context, opts Options) (results []Result, err error) {
	say := func(format string, args ...any) {
		if opts.Progress != nil {
			opts.Progress(fmt.Sprintf(format, args...))
		}
	}
	say("starting a private Postgres and a NATS server")
	config := fmt.Sprintf("streams:\n  - {name: %s, subjects: [pool.>], storage: file, duplicateWindow: 2m}\n", poolStream)
	box, err := sandbox.Start(ctx, sandbox.Options{Program: opts.Program, Config: config})
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := box.Close(); err == nil && e != nil {
			err = e
		}
	}()
	if err := box.Command(ctx, "migrate", "up", "--partitions", fmt.Sprint(opts.Partitions)); err != nil {
		return nil, err
	}
	if err := box.Command(ctx, "streams", "apply"); err != nil {
		return nil, err
	}
	say("outlane: %d events, %s", opts.Events, number(opts.Workers, "worker"))
	pool, err := runPool(ctx, box, opts)
	if err != nil {
		return nil, fmt.Errorf("measure the pool: %w", err)
	}
	results = append(results, pool)
	for _, n := range opts.Pollers {
		say("SKIP LOCKED: %d events, %s", opts.Events, number(n, "poller"))
		r, err := runPollers(ctx, box, opts, n)
		if err != nil {
			return nil, fmt.Errorf("measure %d pollers: %w", n, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// runPool has workers drain the outbox.
func runPool(ctx context.Context, box *sandbox.Sandbox, opts Options) (Result, error) {
	const backlog = `INSERT INTO outbox_events (stream, topic, payload)
		SELECT $1, 'pool.event', jsonb_build_object('team_id', 'team_' || n % $3, 'n', n, 'text', repeat('x', $4)) FROM generate_series(1, $2::int) n`
	if _, err := box.DB.Exec(ctx, backlog, poolStream, opts.Events, opts.Keys, opts.Payload); err != nil {
		return Result{}, fmt.Errorf("insert the backlog: %w", err)
	}
	if _, err := box.DB.Exec(ctx, "VACUUM ANALYZE outbox_events"); err != nil {
		return Result{}, fmt.Errorf("settle the table: %w", err)
	}
	for i := range opts.Workers {
		if _, err := box.StartWorker(fmt.Sprintf("worker-%d", i+1)); err != nil {
			return Result{}, err
		}
	}
	if err := awaitMessages(ctx, box, poolStream, opts.Events); err != nil {
		return Result{}, fmt.Errorf("%w; the log of a worker ends so:\n%s", err, box.Workers[0].Tail())
	}
	if err := box.StopWorkers(); err != nil {
		return Result{}, fmt.Errorf("stop the workers: %w", err)
	}
	r, err := measure(ctx, box, poolStream, opts)
	r.Name = "outlane, " + number(opts.Workers, "worker")
	return r, err
}

// awaitMessages waits until a stream has so many messages.
func awaitMessages(ctx context.Context, box *sandbox.Sandbox, stream string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	s, err := box.JetStream.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("find stream %s: %w", stream, err)
	}
	for {
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", stream, err)
		}
		if info.State.Msgs >= uint64(n) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d messages in %s, which has %d: %w", n, stream, info.State.Msgs, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}

// measure reads a stream from end to end.
func measure(ctx context.Context, box *sandbox.Sandbox, stream string, opts Options) (Result, error) {
	s, err := box.JetStream.Stream(ctx, stream)
	if err != nil {
		return Result{}, fmt.Errorf("find stream %s: %w", stream, err)
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return Result{}, fmt.Errorf("read stream %s: %w", stream, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return Result{}, fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer messages.Stop()
	r := Result{Events: opts.Events}
	latest := map[string]int{}
	var first, last time.Time
	for range s.CachedInfo().State.Msgs {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return Result{}, fmt.Errorf("read stream %s: %w", stream, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return Result{}, fmt.Errorf("read stream %s: %w", stream, err)
		}
		if r.Stored == 0 {
			first = meta.Timestamp
		}
		last = meta.Timestamp
		r.Stored++
		team, n, err := parse(msg.Data())
		if err != nil {
			return Result{}, fmt.Errorf("read stream %s: %w", stream, err)
		}
		if n < latest[team] {
			r.OutOfOrder++
		}
		latest[team] = max(latest[team], n)
	}
	r.Seconds = last.Sub(first).Seconds()
	r.Rate = float64(r.Events) / r.Seconds
	return r, nil
}
