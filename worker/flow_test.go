package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// modes are the two ways to publish.
var modes = map[string]func(*jetstream.StreamConfig){
	"fast": func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true },
	"sync": func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false },
}

func TestConcurrentTransactionsArriveInOrder(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 16)
			e.Stream("A", []string{"a.>"}, set)
			e.Stream("B", []string{"b.>"}, set)
			first := e.Start()
			e.Start()
			var producers sync.WaitGroup
			for p := range 6 {
				producers.Go(func() { produce(e, p, 60) })
			}
			e.Start()
			producers.Wait()
			first.Stop()
			e.Drained()
			report := e.Check("A", "B")
			require.Positive(t, report.Stored)
			require.Equal(t, e.Count("SELECT count(*) FROM outbox_events"), int(report.Stored))
		})
	}
}

// produce runs transactions: some rolled back, some with savepoints, each with events of several keys.
func produce(e *pooltest.Env, producer, transactions int) {
	r := rand.New(rand.NewPCG(uint64(producer), 1))
	ctx := e.T.Context()
	for range transactions {
		_ = pgx.BeginFunc(ctx, e.DB, func(tx pgx.Tx) error {
			for range r.IntN(8) + 1 {
				stream := []string{"A", "B"}[r.IntN(2)]
				topic := map[string]string{"A": "a.x", "B": "b.y"}[stream]
				if r.IntN(10) == 0 {
					_, _ = tx.Exec(ctx, "SAVEPOINT s")
				}
				if _, err := tx.Exec(ctx, pooltest.InsertMany, stream, topic, fmt.Sprint("team-", r.IntN(40)), r.IntN(3)+1); err != nil {
					return err
				}
				if r.IntN(20) == 0 {
					_, _ = tx.Exec(ctx, "SELECT pg_sleep(0.02)")
				}
			}
			if r.IntN(8) == 0 {
				return pgx.ErrTxClosed // rolled back
			}
			return nil
		})
	}
}

func TestLateCommitIsDeliveredAndCursorWaits(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start()
	ctx := t.Context()

	late, err := e.DB.Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, pooltest.InsertMany, "A", "a.late", "k", 1)
	require.NoError(t, err)
	e.Insert("A", "a.early", "k", 5)
	e.Eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, e.Seqs("A"), "order by commit does not wait")
	require.Zero(t, e.Count("SELECT coalesce(max(cursor), 0) FROM outlane_lanes"), "the cursor waits for number 1")

	require.NoError(t, late.Commit(ctx))
	e.Drained()
	require.Equal(t, []string{"2", "3", "4", "5", "6", "1"}, e.Seqs("A"))
	e.Eventually(6, "SELECT coalesce(max(cursor), 0) FROM outlane_lanes")
	e.Check("A")
}

// portions is a database that notes how much a look at arrivals asks for and brings at most.
type portions struct {
	worker.Database
	asked, brought atomic.Int64
}

func (d *portions) Arrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) ([]store.Event, error) {
	rows, err := d.Database.Arrivals(ctx, from, to, gaps, partitions)
	d.note(gaps, rows)
	return rows, err
}

func (d *portions) PollArrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) (store.Poll, []store.Event, bool, error) {
	p, rows, complete, err := d.Database.PollArrivals(ctx, from, to, gaps, partitions)
	d.note(gaps, rows)
	return p, rows, complete, err
}

func (d *portions) note(gaps []int64, rows []store.Event) {
	d.asked.Store(max(d.asked.Load(), int64(len(gaps))))
	d.brought.Store(max(d.brought.Load(), int64(len(rows))))
}

func TestATransactionOfManyEventsIsReadInPortions(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	var db portions
	e.Start(func(c *worker.Config) {
		db.Database = c.Database
		c.Database, c.Memory, c.BatchBytes = &db, 1<<20, 64<<10
	})
	ctx := t.Context()
	const many = 9000
	large, err := e.DB.Begin(ctx)
	require.NoError(t, err)
	for n := range 3 { // so that some numbers are passed by a large look, and some by a small one
		_, err = large.Exec(ctx, `INSERT INTO outbox_events (stream, topic, partition_key, payload)
			SELECT 'A', 'a.large', 'k' || n % 7, to_jsonb(repeat('x', 500)) FROM generate_series(1, $1::int) n`, many/3)
		require.NoError(t, err)
		e.Insert("A", "a.small", "k1", 2)
		e.Eventually(2*(n+1), "SELECT count(*) FROM outbox_events WHERE processed")
	}
	require.NoError(t, large.Commit(ctx))
	for n := range 5 {
		e.Insert("A", "a.small", fmt.Sprint("k", n), 2)
	}
	e.Drained()
	require.EqualValues(t, many+16, e.Check("A").Stored)
	require.Positive(t, db.asked.Load())
	require.LessOrEqual(t, db.asked.Load(), int64(1000))
	require.LessOrEqual(t, db.brought.Load(), int64(2000))
}

func TestOrderBySequenceWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start(func(c *worker.Config) {
		c.Routes = []worker.Route{{Topics: []string{"a.>"}, Stream: "A", Order: worker.OrderSequence}}
	})
	ctx := t.Context()
	late, err := e.DB.Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, pooltest.InsertMany, "A", "a.late", "k", 1)
	require.NoError(t, err)
	e.Insert("A", "a.early", "k", 5)
	e.Insert("B", "b.other", "k", 5)
	e.Eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	require.Empty(t, e.Seqs("A"), "A waits")
	require.NoError(t, late.Commit(ctx))
	e.Drained()
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, e.Seqs("A"))
}

func TestBacklogLargerThanMemoryDrainsInOrder(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload)
		SELECT gen_random_uuid()::text, 'A', 'a.x', 'k' || n % 40, to_jsonb(repeat('x', 30000)) FROM generate_series(1, 1500) n`)
	w := e.Start(func(c *worker.Config) { c.Memory, c.BatchBytes = 2<<20, 256<<10 })
	e.Drained()
	require.Equal(t, 1500, int(e.Check("A").Stored))
	w.Stop()
	require.Positive(t, w.Peak())
	require.LessOrEqual(t, w.Peak(), int64(2<<20+4*31_000), "payload held at once stays under the limit, but for one row a fetch")
}

func TestEventsWithoutStreamGoWhereTheirTopicIs(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 2)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	for i := range 10 {
		e.Insert("", []string{"a.x", "b.y"}[i%2], "k", 1)
	}
	e.Drained()
	require.Equal(t, []string{"1", "3", "5", "7", "9"}, e.Seqs("A"))
	require.Equal(t, []string{"2", "4", "6", "8", "10"}, e.Seqs("B"))
}

func TestLanesThatFindNoMemoryAreServedInTurn(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 64)
	e.Stream("A", []string{"a.>"})
	e.Exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT 'A', 'a.x', n::text, '{}' FROM generate_series(1, 2000) n`)
	e.Start(func(c *worker.Config) { c.Memory, c.BatchBytes = 64<<10, 32<<10 }) // for two lanes at a time
	e.Drained()
	require.Len(t, e.Seqs("A"), 2000)
	e.Check("A")
}
