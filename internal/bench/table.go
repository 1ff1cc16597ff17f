package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// largeTable is section c: what a backlog costs beside rows that were processed before it.
func largeTable(ctx context.Context, l *lab) ([]Row, error) {
	processed := pick(l, 5000, 1_000_000, 10_000_000)
	from := backlog{events: pick(l, 2000, 200_000, 500_000), keys: 5000, payload: 200, partitions: 64, streams: 1}
	full := from
	full.processed = processed
	beside := pool(1, full)
	beside.name = fmt.Sprintf("%s beside %s processed rows", number(1, "worker"), amount(processed))
	empty := pool(1, from)
	empty.name = "1 worker, only the backlog in the table"
	rows, err := l.sides(ctx, l.repeats(), empty, beside)
	if err != nil {
		return nil, err
	}
	cost := func(r Row) Row {
		for i, rate := range r.Samples {
			r.Samples[i] = 1e6 / rate
		}
		r.Value, r.Unit = median(r.Samples), "µs an event"
		return r
	}
	before, after := cost(rows[0]), cost(rows[1])
	return []Row{after.against(before.Name, before.Value).target("≤ 1.2").note("a backlog of %s", amount(from.events))}, nil
}

// addProcessed fills the table with rows that a pool has processed: each was inserted and then marked, cursors and the horizon are past them.
func (l *lab) addProcessed(ctx context.Context, db *pgx.Conn, b backlog) error {
	l.say("making %s processed rows", amount(b.processed))
	const slice = 250_000
	for done := 0; done < b.processed; done += slice {
		n := min(slice, b.processed-done)
		_, err := db.Exec(ctx, "INSERT INTO outbox_events (stream, topic, payload) "+b.rows(), n, b.keys, b.payload, max(b.streams, 1))
		if err != nil {
			return fmt.Errorf("insert processed rows: %w", err)
		}
		for _, sql := range []string{"UPDATE outbox_events SET processed = true, processed_at = now() WHERE NOT processed", "VACUUM outbox_events"} {
			if _, err := db.Exec(ctx, sql); err != nil {
				return fmt.Errorf("mark rows: %w", err)
			}
		}
	}
	for _, sql := range []string{
		`INSERT INTO outlane_lanes (stream, partition, cursor) SELECT DISTINCT e.stream, p.partition, s.last_value
			FROM (SELECT DISTINCT stream FROM outbox_events) e, outlane_partitions p, outbox_events_seq s`,
		"UPDATE outlane_horizon SET seq = (SELECT last_value FROM outbox_events_seq)",
	} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("set the cursors: %w", err)
		}
	}
	return nil
}

// disturbed is section d: a drain while other sessions hold back what Postgres would clean up.
func disturbed(ctx context.Context, l *lab) ([]Row, error) {
	half := pick(l, 1500, 60_000, 250_000)
	from := backlog{events: 2 * half, keys: 5000, payload: 200, partitions: 64, streams: 1}
	cases := []struct {
		name    string
		disturb func(ctx context.Context, s *site) (stop func() error, err error)
	}{
		{"undisturbed", func(context.Context, *site) (func() error, error) { return func() error { return nil }, nil }},
		{"beside a REPEATABLE READ snapshot, which was there through the run before", holdSnapshot},
		{"beside an open transaction that has inserted an event", holdWrite},
		{"beside VACUUM, again and again, at autovacuum's pace", keepVacuuming},
	}
	rates := make([][]float64, len(cases))
	wrong := make([]faults, len(cases))
	for range l.repeats() {
		for i, c := range cases {
			l.say("%s", c.name)
			rate, f, err := l.disturbedDrain(ctx, from, half, c.disturb)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rates[i] = append(rates[i], rate)
			wrong[i].add(f)
		}
	}
	var list []Row
	for i := range cases[1:] {
		r := wrong[i+1].describe(row("1 worker "+cases[i+1].name, "events/s", rates[i+1]...))
		list = append(list, r.against("1 worker, undisturbed", median(rates[0])).target("≥ 0.9"))
	}
	return list, nil
}

// disturbedDrain drains a backlog in two halves, and measures the second.
func (l *lab) disturbedDrain(ctx context.Context, from backlog, half int, disturb func(context.Context, *site) (func() error, error)) (rate float64, f faults, err error) {
	template, err := l.backlog(ctx, from)
	if err != nil {
		return 0, f, err
	}
	s, err := l.site(ctx, template, siteOptions{hole: from.hole()})
	if err != nil {
		return 0, f, err
	}
	stop, err := disturb(ctx, s)
	if err != nil {
		return 0, f, err
	}
	if err := s.startWorkers(ctx, 1); err != nil {
		return 0, f, err
	}
	for _, upto := range []int{half, 2 * half} {
		if _, err := s.release(ctx, upto); err != nil {
			return 0, f, err
		}
		_, last, err := s.awaitStored(ctx, upto)
		if err != nil {
			return 0, f, err
		}
		stream, err := s.js.Stream(ctx, streamName(0))
		if err != nil {
			return 0, f, err
		}
		first, err := stream.GetMsg(ctx, uint64(upto-half+1))
		if err != nil {
			return 0, f, fmt.Errorf("read the first message: %w", err)
		}
		rate = float64(half) / last.Sub(first.Time).Seconds()
	}
	if err := stop(); err != nil {
		return 0, f, err
	}
	if err := s.stopWorkers(); err != nil {
		return 0, f, err
	}
	if f, err = s.verify(ctx, 2*half); err != nil {
		return 0, f, err
	}
	l.say("%s/s", figure(rate))
	return rate, f, s.close(ctx)
}

// session is a connection that holds something until it is closed.
func (s *site) session(ctx context.Context, statements ...string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			_ = conn.Close(ctx) // the error counts
			return nil, fmt.Errorf("hold a transaction: %w", err)
		}
	}
	return conn, nil
}

func holdSnapshot(ctx context.Context, s *site) (func() error, error) {
	conn, err := s.session(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM outlane_config")
	if err != nil {
		return nil, err
	}
	return func() error { return conn.Close(ctx) }, nil
}

// holdWrite inserts an event into the hole before the backlog: a number that may yet appear.
func holdWrite(ctx context.Context, s *site) (func() error, error) {
	if _, err := s.db.Exec(ctx, "SELECT setval('outbox_events_seq', $1, false)", s.hole); err != nil {
		return nil, fmt.Errorf("open the hole: %w", err)
	}
	conn, err := s.session(ctx, "BEGIN", `INSERT INTO outbox_events (stream, topic, payload) VALUES ('S0', 'bench.0.event', '{"team_id": "t_1"}')`)
	if err != nil {
		return nil, err
	}
	return func() error { return conn.Close(ctx) }, s.hide(ctx)
}

// keepVacuuming vacuums the outbox again and again, slowed down as autovacuum is.
func keepVacuuming(ctx context.Context, s *site) (func() error, error) {
	conn, err := s.session(ctx, "SET vacuum_cost_delay = '2ms'", "SET vacuum_cost_limit = 200")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			_, err := conn.Exec(ctx, "VACUUM (ANALYZE) outbox_events")
			if ctx.Err() != nil {
				ended <- nil
				return
			}
			if err != nil {
				ended <- fmt.Errorf("vacuum: %w", err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return func() error {
		cancel()
		err := <-ended
		_ = conn.Close(context.WithoutCancel(ctx)) // it is broken off
		return err
	}, nil
}
