package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	producers = 32
	keys      = 5000
	// mostEvents is how many events a transaction of a flow has at most.
	mostEvents = 5
	// One transaction in so many is rolled back, and one in so many stays open for a while.
	rollBackOneIn = 25
	pauseOneIn    = 30
	longestPause  = time.Second
	// insertTimeout is for one transaction, on a loaded machine.
	insertTimeout = time.Minute
)

// Flow is producers at work.
type Flow struct {
	*Site
	rate int
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	failed error
}

// Steady lets producers insert that many events a second, over many keys, with several transactions open at once, of which some are rolled
// back, until ctx ends or Stop is called. The tables and streams must be there.
func (x *Site) Steady(ctx context.Context, rate int) *Flow {
	ctx, cancel := context.WithCancel(ctx)
	f := &Flow{Site: x, rate: rate, stop: cancel}
	f.fail(x.watch.start(ctx, x))
	for i := range producers {
		f.done.Go(func() { f.produce(ctx, rand.New(rand.NewPCG(uint64(i), uint64(rate)))) })
	}
	return f
}

// Stop ends the producers when their transactions are over. The error says what went wrong with them.
func (f *Flow) Stop() error {
	f.stop()
	f.done.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// fail keeps the first error.
func (f *Flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

func (f *Flow) produce(ctx context.Context, r *rand.Rand) {
	due := time.Now()
	for {
		n := 1 + r.IntN(mostEvents)
		due = due.Add(time.Duration(n) * time.Second * producers / time.Duration(f.rate))
		if time.Since(due) > time.Second {
			due = time.Now() // what could not be inserted is not made up for
		}
		rest(ctx, time.Until(due))
		if ctx.Err() != nil {
			return
		}
		pause := time.Duration(0)
		if r.IntN(pauseOneIn) == 0 {
			pause = time.Duration(r.Int64N(int64(longestPause)))
		}
		if err := f.transaction(ctx, r, n, pause, r.IntN(rollBackOneIn) == 0); err != nil {
			f.fail(err)
			rest(ctx, time.Second)
		}
	}
}

// transaction inserts n events and keeps the transaction open for a while. It runs to its end also when ctx ends, but for the pause.
func (f *Flow) transaction(ctx context.Context, r *rand.Rand, n int, pause time.Duration, rollBack bool) error {
	batch := &pgx.Batch{}
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
		kind := kinds[r.IntN(len(kinds))]
		batch.Queue("INSERT INTO outbox_events (id, stream, topic, payload) VALUES ($1, $2, $3, $4)", ids[i].String(), f.stream(kind),
			topic(f.name, kind, "made"), payload(fmt.Sprintf("key_%04d", r.IntN(keys))))
	}
	return f.inTransaction(ctx, ids, rollBack, func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("insert events: %w", err)
		}
		return nil
	}, pause)
}

func payload(key string) []byte {
	return fmt.Appendf(nil, `{"team_id":%q,"text":"as long as events often are, or a little less"}`, key)
}

// inTransaction inserts events, and notes in the ledger what came of it.
func (x *Site) inTransaction(ctx context.Context, ids []uuid.UUID, rollBack bool, insert func(context.Context, pgx.Tx) error, pause time.Duration) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), insertTimeout+pause)
	defer cancel()
	tx, err := x.DB.Begin(limited)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if err = insert(limited, tx); err == nil {
		rest(ctx, pause)
		if !rollBack {
			if err = tx.Commit(limited); err != nil {
				x.ledger.note(inDoubt, time.Now(), ids)
				return fmt.Errorf("commit: %w", err)
			}
			x.ledger.note(committed, time.Now(), ids)
			return nil
		}
	}
	x.ledger.note(rolledBack, time.Now(), ids)
	return errors.Join(err, tx.Rollback(limited))
}

// Burst inserts n events over all partitions, in one transaction.
func (x *Site) Burst(ctx context.Context, n int) error {
	return x.burst(ctx, n, func(i int) string { return fmt.Sprintf("key_%06d", i) })
}

// BurstOneKey inserts n events of one key, in one transaction.
func (x *Site) BurstOneKey(ctx context.Context, n int) error {
	return x.burst(ctx, n, func(int) string { return "the_one_key" })
}

func (x *Site) burst(ctx context.Context, n int, key func(i int) string) error {
	if err := x.watch.start(ctx, x); err != nil {
		return err
	}
	ids, texts, payloads := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i := range ids {
		ids[i] = uuid.New()
		texts[i], payloads[i] = ids[i].String(), string(payload(key(i)))
	}
	return x.inTransaction(ctx, ids, false, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO outbox_events (id, stream, topic, payload)
			SELECT id, $3, $4, payload::jsonb FROM unnest($1::text[], $2::text[]) AS new (id, payload)`,
			texts, payloads, x.stream(kinds[0]), topic(x.name, kinds[0], "burst"))
		if err != nil {
			return fmt.Errorf("insert events: %w", err)
		}
		return nil
	}, 0)
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
