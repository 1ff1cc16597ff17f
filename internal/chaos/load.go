package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outlane/outlane/internal/city"
)

const (
	// leastProducers, or one for so many events a second: some are in a long transaction at any time.
	leastProducers = 8
	producerRate   = 40
	// transactionTimeout is a producer's patience beyond the pauses of its transaction.
	transactionTimeout = 8 * time.Second
	// breather is a producer's rest after its transaction has failed.
	breather = 100 * time.Millisecond
)

// load is the producers. Each has its transactions one after another, so that it knows which of its events were committed before others were
// inserted.
type load struct {
	db        *pgxpool.Pool
	ledger    *ledger
	seed      uint64
	rate      int // events a second, all producers together
	producers int
	ctx       context.Context
	stop      context.CancelFunc
	done      sync.WaitGroup
}

func newLoad(db *pgxpool.Pool, seed uint64, rate int) *load {
	return &load{db: db, ledger: newLedger(), seed: seed, rate: rate, producers: max(leastProducers, rate/producerRate)}
}

// start lets the producers insert until end. What they are in the midst of then is not cut off.
func (l *load) start(ctx context.Context) {
	l.ctx, l.stop = context.WithCancel(ctx)
	for i := range uint32(l.producers) {
		l.done.Go(func() { l.produce(i, city.New(l.city(uint64(i)))) })
	}
}

func (l *load) city(n uint64) city.Options {
	return city.Options{Teams: 200, Seed: l.seed*1000 + n, RollBacks: 0.04, Pauses: 0.03, LongestPause: 2 * time.Second}
}

// end returns when the last transaction is over.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

func (l *load) produce(producer uint32, c *city.City) {
	due := time.Now()
	for l.ctx.Err() == nil {
		t := c.Next()
		due = due.Add(time.Duration(len(t.Events)) * time.Second * time.Duration(l.producers) / time.Duration(l.rate))
		switch wait := time.Until(due); {
		case wait > 0:
			rest(l.ctx, wait)
		case wait < -time.Second:
			due = time.Now() // what could not be inserted is not made up for
		}
		if l.ctx.Err() != nil {
			return
		}
		if o, _ := l.run(l.ctx, producer, t, nil); o == inDoubt {
			rest(l.ctx, breather)
		}
	}
}

// event is a row to insert.
const insert = "INSERT INTO outbox_events (id, stream, topic, payload, headers) VALUES ($1, $2, $3, $4, $5)"

// run runs one transaction to its end, also when ctx ends meanwhile but for its pause, and notes its outcome. The error says why it did not
// end as it was to. Poisoned names events by their index.
func (l *load) run(ctx context.Context, producer uint32, t city.Transaction, poisoned map[int]bool) (outcome, error) {
	ids := make([]uuid.UUID, len(t.Events))
	bad := map[uuid.UUID]bool{}
	for i := range ids {
		ids[i] = uuid.New()
		if poisoned[i] {
			bad[ids[i]] = true
		}
	}
	o, err := l.attempt(ctx, t, ids)
	l.ledger.note(producer, o, ids, bad)
	return o, err
}

func (l *load) attempt(ctx context.Context, t city.Transaction, ids []uuid.UUID) (outcome, error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionTimeout+t.Pause)
	defer cancel()
	tx, err := l.db.Begin(limited)
	if err != nil {
		return rolledBack, err
	}
	// Does nothing after a commit. A connection on which it fails is closed, which ends the transaction as well.
	defer func() { _ = tx.Rollback(limited) }()
	if err := insertAll(limited, tx, t, ids, func(d time.Duration) { rest(ctx, d) }); err != nil {
		return rolledBack, err
	}
	if t.RollBack {
		return rolledBack, tx.Rollback(limited)
	}
	return outcomeOf(tx.Commit(limited))
}

// outcomeOf says what the answer to COMMIT means. A server that ends the session while it commits leaves one in doubt.
func outcomeOf(err error) (outcome, error) {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return committed, nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return rolledBack, err
	case errors.As(err, &refused) && refused.Severity == "ERROR":
		return rolledBack, err
	}
	return inDoubt, err
}

// insertAll inserts a transaction's events; its pause comes after the first, and at the end.
func insertAll(ctx context.Context, tx pgx.Tx, t city.Transaction, ids []uuid.UUID, pause func(time.Duration)) error {
	batch := &pgx.Batch{}
	for i, e := range t.Events {
		batch.Queue(insert, ids[i].String(), e.Stream, e.Topic, e.Payload, e.Headers)
		if t.Pause > 0 && i == 0 {
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return fmt.Errorf("insert an event: %w", err)
			}
			batch = &pgx.Batch{}
			pause(t.Pause / 2)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("insert events: %w", err)
	}
	pause(t.Pause / 2)
	return nil
}

// rest returns after d, or when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
