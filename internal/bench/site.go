package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
)

// site is the place of one run: a database of its own, streams of its own, and the processes that work on them.
type site struct {
	lab     *lab
	name    string
	url     string // of the database
	lease   string // of the workers
	hole    int    // the number before the backlog's first
	natsAt  string
	js      jetstream.JetStream
	db      *pgxpool.Pool
	streams []string
	workers []*process
	others  []*process
}

// siteOptions describe a site. The zero value is one stream that takes batches, on one server.
type siteOptions struct {
	streams   int // 0: 1
	noBatches bool
	replicas  int      // 0: 1
	hole      int      // of the backlog in the template
	cluster   *cluster // nil: the lab's server
}

// duplicateWindow is that of every stream.
const duplicateWindow = 2 * time.Minute

// streamName is the name of a stream by its number, from 0. All sites use the same: one stands at a time.
func streamName(n int) string { return fmt.Sprintf("S%d", n) }

// site copies a template.
func (l *lab) site(ctx context.Context, template string, opts siteOptions) (_ *site, err error) {
	l.databases++
	s := &site{lab: l, name: fmt.Sprintf("run_%d", l.databases), hole: opts.hole, lease: shortLease, natsAt: l.natsAt, js: l.js}
	if opts.cluster != nil {
		s.js = opts.cluster.js
	}
	if _, err := l.admin.Exec(ctx, "CREATE DATABASE "+s.name+" TEMPLATE "+template); err != nil {
		return nil, fmt.Errorf("copy a database: %w", err)
	}
	l.open = append(l.open, s)
	s.url = l.pg.URL(s.name)
	if s.db, err = pgxpool.New(ctx, s.url); err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	for n := range max(opts.streams, 1) {
		name := streamName(n)
		_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{fmt.Sprintf("bench.%d.>", n)}, Storage: jetstream.FileStorage, Replicas: max(opts.replicas, 1),
			Duplicates: duplicateWindow, AllowBatchPublish: !opts.noBatches,
		})
		if err != nil {
			return nil, fmt.Errorf("create stream %s: %w", name, err)
		}
		s.streams = append(s.streams, name)
		if opts.cluster == nil {
			continue
		}
		if s.natsAt, err = opts.cluster.leader(ctx, name); err != nil { // as good as it gets, and the same for all
			return nil, err
		}
	}
	if _, err := l.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, fmt.Errorf("write a checkpoint: %w", err)
	}
	return s, nil
}

// shortLease is the workers' lease duration, unless a site says otherwise: they share the partitions out soon.
const shortLease = "2s"

// startWorkers starts a pool and returns when the partitions are shared out evenly.
func (s *site) startWorkers(ctx context.Context, n int, env ...string) error {
	for i := range n {
		id := fmt.Sprintf("worker-%d", len(s.workers)+1)
		p, err := s.lab.start("worker", append([]string{"OUTLANE_DATABASE_URL=" + s.url, "OUTLANE_NATS_URL=" + s.natsAt,
			"OUTLANE_WORKER_ID=" + id, "OUTLANE_HTTP_ADDR=127.0.0.1:0", "OUTLANE_LEASE_DURATION=" + s.lease, "OUTLANE_LOG_LEVEL=warn"}, env...), "worker")
		if err != nil {
			return fmt.Errorf("start worker %d: %w", i+1, err)
		}
		s.workers = append(s.workers, p)
	}
	return s.balanced(ctx)
}

// balanced waits until each worker has its share, and nobody is about to change that.
func (s *site) balanced(ctx context.Context) error {
	return wait(ctx, "the pool to share out the partitions", time.Minute, func() (bool, error) {
		for _, w := range s.workers {
			select {
			case <-w.done:
				return false, fmt.Errorf("%s ended: %s", w.name, w.tail())
			default:
			}
		}
		var owners, least, most, total, all int
		err := s.db.QueryRow(ctx, `SELECT count(*), coalesce(min(n), 0), coalesce(max(n), 0), coalesce(sum(n), 0), (SELECT count(*) FROM outlane_partitions)
			FROM (SELECT count(*) AS n FROM outlane_partitions WHERE owner IS NOT NULL GROUP BY owner) o`).Scan(&owners, &least, &most, &total, &all)
		return owners == len(s.workers) && most-least <= 1 && total == all, err
	})
}

// release makes the first n events of the template's backlog known: their rows are there, but the sequence says that they are not. So a pool
// that is up and settled has a backlog from one moment to the next. It returns that moment.
func (s *site) release(ctx context.Context, n int) (time.Time, error) {
	began := time.Now()
	_, err := s.db.Exec(ctx, "SELECT setval('outbox_events_seq', $1), pg_notify('outlane_' || left(md5('public'), 16), '')", s.hole+n)
	if err != nil {
		return began, fmt.Errorf("release the backlog: %w", err)
	}
	return began, nil
}

// hide undoes a release that nobody has seen.
func (s *site) hide(ctx context.Context) error { return hide(ctx, s.db, s.hole) }

type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func hide(ctx context.Context, db executor, hole int) error {
	if _, err := db.Exec(ctx, "SELECT setval('outbox_events_seq', $1, $2)", max(hole-1, 1), hole > 1); err != nil {
		return fmt.Errorf("hide the backlog: %w", err)
	}
	return nil
}

// stored counts the messages in the streams, and tells when the first and the last of them were stored.
func (s *site) stored(ctx context.Context) (n int, first, last time.Time, err error) {
	for _, name := range s.streams {
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return 0, first, last, fmt.Errorf("look at stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		if state.Msgs == 0 {
			continue
		}
		n += int(state.Msgs)
		if first.IsZero() || state.FirstTime.Before(first) {
			first = state.FirstTime
		}
		if state.LastTime.After(last) {
			last = state.LastTime
		}
	}
	return n, first, last, nil
}

// drainPatience is how long a drain may take.
const drainPatience = 10 * time.Minute

// awaitStored waits until so many messages are stored. It looks seldom: looking costs.
func (s *site) awaitStored(ctx context.Context, n int) (first, last time.Time, err error) {
	deadline := time.Now().Add(drainPatience)
	for {
		var have int
		have, first, last, err = s.stored(ctx)
		switch {
		case err != nil:
			return first, last, err
		case have >= n:
			return first, last, nil
		case time.Now().After(deadline):
			return first, last, fmt.Errorf("wait for %d messages: there are %d after %s; %s", n, have, drainPatience, s.tails())
		}
		for _, p := range slices.Concat(s.workers, s.others) {
			select {
			case <-p.done:
				return first, last, fmt.Errorf("%s ended: %s", p.name, p.tail())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return first, last, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *site) tails() string {
	var text string
	for _, p := range slices.Concat(s.workers, s.others) {
		text += p.name + " says: " + p.tail() + "\n"
	}
	return text
}

// startOther starts a process that waits for its word, and tellOthers gives it to all of them.
func (s *site) startOther(name string, ord order) error {
	p, _, err := s.lab.startChild(name, ord)
	if err != nil {
		return err
	}
	s.others = append(s.others, p)
	return nil
}

func (s *site) tellOthers() (began time.Time, err error) {
	began = time.Now()
	for _, p := range s.others {
		err = errors.Join(err, p.tell("go"))
	}
	return began, err
}

// stopWorkers ends the pool in order.
func (s *site) stopWorkers() error {
	var list []error
	for _, w := range s.workers {
		w.term()
	}
	for _, w := range s.workers {
		list = append(list, w.end())
	}
	s.workers = nil
	return errors.Join(list...)
}

func (s *site) endProcesses() {
	for _, p := range slices.Concat(s.workers, s.others) {
		p.term()
	}
	for _, p := range slices.Concat(s.workers, s.others) {
		_ = p.end() // the run has failed already
	}
	s.workers, s.others = nil, nil
}

// close removes the site.
func (s *site) close(ctx context.Context) error {
	err := s.stopWorkers()
	for _, p := range s.others {
		err = errors.Join(err, p.end())
	}
	s.others = nil
	s.db.Close()
	for _, name := range s.streams {
		err = errors.Join(err, s.js.DeleteStream(ctx, name))
	}
	_, e := s.lab.admin.Exec(ctx, "DROP DATABASE "+s.name+" WITH (FORCE)")
	s.lab.open = slices.DeleteFunc(s.lab.open, func(o *site) bool { return o == s })
	return errors.Join(err, e)
}
