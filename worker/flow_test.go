package worker_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

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
			e := newEnv(t, 16)
			e.stream("A", []string{"a.>"}, set)
			e.stream("B", []string{"b.>"}, set)
			first := e.start()
			e.start()
			var producers sync.WaitGroup
			for p := range 6 {
				producers.Go(func() { e.produce(p, 60) })
			}
			e.start()
			producers.Wait()
			first.stop()
			e.drained()
			report := e.check("A", "B")
			require.Positive(t, report.Stored)
			require.Equal(t, e.count("SELECT count(*) FROM outbox_events"), int(report.Stored))
		})
	}
}

// produce runs transactions: some rolled back, some with savepoints, each with events of several keys.
func (e *env) produce(producer, transactions int) {
	r := rand.New(rand.NewPCG(uint64(producer), 1))
	ctx := e.t.Context()
	for range transactions {
		_ = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
			for range r.IntN(8) + 1 {
				stream := []string{"A", "B"}[r.IntN(2)]
				topic := map[string]string{"A": "a.x", "B": "b.y"}[stream]
				if r.IntN(10) == 0 {
					_, _ = tx.Exec(ctx, "SAVEPOINT s")
				}
				if _, err := tx.Exec(ctx, insertMany, stream, topic, fmt.Sprint("team-", r.IntN(40)), r.IntN(3)+1); err != nil {
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
	e := newEnv(t, 1)
	e.stream("A", []string{"a.>"})
	e.start()
	ctx := t.Context()

	late, err := e.db.Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, insertMany, "A", "a.late", "k", 1)
	require.NoError(t, err)
	e.insert("A", "a.early", "k", 5)
	e.eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, e.seqs("A"), "order by commit does not wait")
	require.Zero(t, e.count("SELECT coalesce(max(cursor), 0) FROM outlane_lanes"), "the cursor waits for number 1")

	require.NoError(t, late.Commit(ctx))
	e.drained()
	require.Equal(t, []string{"2", "3", "4", "5", "6", "1"}, e.seqs("A"))
	e.eventually(6, "SELECT coalesce(max(cursor), 0) FROM outlane_lanes")
	e.check("A")
}

func TestOrderBySequenceWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 1)
	e.stream("A", []string{"a.>"})
	e.stream("B", []string{"b.>"})
	e.start(func(c *worker.Config) {
		c.Routes = []worker.Route{{Topics: []string{"a.>"}, Stream: "A", Order: worker.OrderSequence}}
	})
	ctx := t.Context()
	late, err := e.db.Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, insertMany, "A", "a.late", "k", 1)
	require.NoError(t, err)
	e.insert("A", "a.early", "k", 5)
	e.insert("B", "b.other", "k", 5)
	e.eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	require.Empty(t, e.seqs("A"), "A waits")
	require.NoError(t, late.Commit(ctx))
	e.drained()
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, e.seqs("A"))
}

func TestBacklogLargerThanMemoryDrainsInOrder(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	e.stream("A", []string{"a.>"})
	e.exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload)
		SELECT gen_random_uuid()::text, 'A', 'a.x', 'k' || n % 40, to_jsonb(repeat('x', 30000)) FROM generate_series(1, 1500) n`)
	w := e.start(func(c *worker.Config) { c.Memory, c.BatchBytes = 2<<20, 256<<10 })
	e.drained()
	require.Equal(t, 1500, int(e.check("A").Stored))
	w.stop()
	require.Positive(t, w.Peak())
	require.LessOrEqual(t, w.Peak(), int64(2<<20+4*31_000), "payload held at once stays under the limit, but for one row a fetch")
}

func TestEventsWithoutStreamGoWhereTheirTopicIs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 2)
	e.stream("A", []string{"a.>"})
	e.stream("B", []string{"b.>"})
	e.start()
	for i := range 10 {
		e.insert("", []string{"a.x", "b.y"}[i%2], "k", 1)
	}
	e.drained()
	require.Equal(t, []string{"1", "3", "5", "7", "9"}, e.seqs("A"))
	require.Equal(t, []string{"2", "4", "6", "8", "10"}, e.seqs("B"))
}
