package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outlane/outlane/internal/city"
)

// ledger is the table of the city's own business, which its transactions write besides the outbox.
const ledger = `CREATE TABLE city_ledger (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	team   text NOT NULL,
	what   text NOT NULL,
	amount bigint NOT NULL,
	at     timestamptz NOT NULL DEFAULT now()
)`

// load is the producers: they run the city's transactions, many at a time, at a given pace.
type load struct {
	db     *pgxpool.Pool
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read after done

	committed atomic.Int64 // events
	fullSpeed atomic.Bool

	mu           sync.Mutex
	at           map[string]time.Time // event → the moment before its COMMIT was sent
	poison       string               // the poisoned event's id
	transactions int64
	rolledBack   int64 // transactions
	neverWere    int64 // their events
	slow         int64 // transactions
}

// startLoad begins to insert events, about opts.Events of them.
func startLoad(ctx context.Context, db *pgxpool.Pool, opts Options) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{db: db, cancel: cancel, done: make(chan struct{}), at: make(map[string]time.Time, opts.Events)}
	work := make(chan city.Transaction)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(work)
		return l.pace(ctx, opts, work)
	})
	for range opts.Producers {
		group.Go(func() error {
			for t := range work {
				if err := l.run(ctx, t); err != nil {
					return fmt.Errorf("run a transaction of the city: %w", err)
				}
			}
			return nil
		})
	}
	go func() {
		defer close(l.done)
		defer cancel()
		l.err = group.Wait()
	}()
	return l
}

// longestCatchUp is how far the load may be behind its pace and still catch up.
const longestCatchUp = 50 * time.Millisecond

// pace hands out transactions as time goes by, or as fast as they are taken once fullSpeed is set. The poisoned one comes a third of the way.
func (l *load) pace(ctx context.Context, opts Options, work chan<- city.Transaction) error {
	c := city.New(city.Options{Teams: opts.Teams, Seed: opts.Seed, RollBacks: 0.03, Pauses: 0.01, LongestPause: 1500 * time.Millisecond})
	poisoned := false
	due := time.Now()
	for events := 0; events < opts.Events; {
		t := c.Next()
		if !poisoned && events >= opts.Events/3 {
			t, poisoned = c.Poison(), true
		}
		if !t.RollBack {
			events += len(t.Events)
		}
		due = due.Add(time.Duration(len(t.Events)) * time.Second / time.Duration(opts.Rate))
		if wait := time.Until(due); wait < -longestCatchUp {
			due = time.Now() // a machine that had no time is not punished with a burst
		} else if wait > time.Millisecond && !l.fullSpeed.Load() {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case work <- t:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// run does what any service would: its business change and its events, in one transaction, by plain SQL.
func (l *load) run(ctx context.Context, t city.Transaction) error {
	tx, err := l.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // does nothing after a commit
	ids := make([]string, len(t.Events))
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO city_ledger (team, what, amount) VALUES ($1, $2, $3)", t.Team, t.What, t.Amount)
	for i, e := range t.Events {
		ids[i] = uuid.NewString()
		batch.Queue("INSERT INTO outbox_events (id, stream, topic, payload, headers) VALUES ($1, $2, $3, $4, $5)", ids[i], e.Stream, e.Topic, e.Payload, e.Headers)
		if t.Pause > 0 && i == 0 && len(t.Events) > 1 {
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return err
			}
			batch = &pgx.Batch{}
			l.rest(ctx, t.Pause/2)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if t.Pause > 0 {
		l.rest(ctx, t.Pause/2)
	}
	if t.RollBack {
		l.count(t, nil, time.Time{})
		return tx.Rollback(ctx)
	}
	before := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	l.count(t, ids, before)
	return nil
}

func (l *load) rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// count notes a transaction; ids is nil if it was rolled back.
func (l *load) count(t city.Transaction, ids []string, at time.Time) {
	l.committed.Add(int64(len(ids)))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transactions++
	if t.Pause > 0 {
		l.slow++
	}
	if ids == nil {
		l.rolledBack++
		l.neverWere += int64(len(t.Events))
	}
	for _, id := range ids {
		l.at[id] = at
		if t.Events[0].Headers != nil {
			l.poison = id
		}
	}
}

// wait returns when all events are committed.
func (l *load) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed is the error that ended the load early, or nil.
func (l *load) failed() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// stop ends the load at once and waits for its end.
func (l *load) stop() {
	l.cancel()
	<-l.done
}

// poisoned is the number of committed events that can never be stored.
func (l *load) poisoned() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison == "" {
		return 0
	}
	return 1
}
