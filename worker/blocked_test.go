package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// lossy loses the first answer about a dead letter.
type lossy struct {
	worker.Database
	lost atomic.Bool
}

func (d *lossy) DeadLetter(ctx context.Context, l store.DeadLetter) error {
	err := d.Database.DeadLetter(ctx, l)
	if err == nil && d.lost.CompareAndSwap(false, true) {
		return errors.New("list a dead letter: unexpected EOF")
	}
	return err
}

func TestADeadLetterWhoseAnswerIsLostBlocksItsKey(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start(block, func(c *worker.Config) { c.Database = &lossy{Database: c.Database} })
	e.Exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers)
		VALUES ('poison', 'A', 'a.poison', 'k', '{}', '{"nats-msg-id": "x"}'), ('next', 'A', 'a.x', 'k', '{}', NULL)`)
	e.Eventually(1, "SELECT count(*) FROM outbox_dead_letters WHERE blocks")
	e.Eventually(1, "SELECT (SELECT count(*) FROM outbox_parked_events) + (SELECT count(*) FROM outbox_events WHERE processed)")
	require.Empty(t, e.Seqs("A"), "stored although a dead letter blocks its key")
}

// gated keeps one look at what has arrived waiting.
type gated struct {
	worker.Database
	closed atomic.Bool
	at     chan struct{}
	open   chan struct{}
}

func (d *gated) Arrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) ([]store.Event, error) {
	if d.closed.CompareAndSwap(true, false) {
		close(d.at)
		<-d.open
	}
	return d.Database.Arrivals(ctx, from, to, gaps, partitions)
}

func (d *gated) PollArrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) (store.Poll, []store.Event, bool, error) {
	p, rows, complete, err := d.Database.PollArrivals(ctx, from, to, gaps, partitions)
	if d.closed.Load() { // so that the rows are asked for by themselves
		return p, nil, false, err
	}
	return p, rows, complete, err
}

func TestAnotherOwnersDeadLetterBlocksItsKeyOnEveryRoute(t *testing.T) {
	t.Parallel()
	for name, topics := range map[string]string{"its route blocks": "a.>", "its route does not": "a.poison"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 1)
			e.Stream("A", []string{"a.>"})
			g := &gated{at: make(chan struct{}), open: make(chan struct{})}
			e.Start(func(c *worker.Config) {
				g.Database = c.Database
				c.Database = g
				c.Routes = []worker.Route{{Topics: []string{topics}, Stream: "A", Block: true, MaxAttempts: 1}, {Topics: []string{"a.>"}, Stream: "A", MaxAttempts: 1}}
			})
			e.Insert("A", "a.x", "other", 1)
			e.Drained()
			g.closed.Store(true)
			e.Exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers)
		VALUES ('poison', 'A', 'a.poison', 'k', '{}', '{"nats-msg-id": "x"}'), ('next', 'A', 'a.x', 'k', '{}', NULL)`)
			<-g.at
			// Another owner claims and gives the first one up.
			db, err := store.Open(store.Config{URL: e.URL})
			require.NoError(t, err)
			defer db.Close()
			claims, err := db.Claim(t.Context(), "B", []int{0})
			require.NoError(t, err)
			require.NoError(t, db.DeadLetter(t.Context(), store.DeadLetter{Event: store.Event{ID: "poison", Seq: 2, Stream: "A", Topic: "a.poison", Key: "k"},
				Epoch: claims[0].Epoch, Reason: "x", Error: "x", Block: true}))
			close(g.open)
			e.Eventually(1, "SELECT least(count(*), 1) FROM outbox_parked_events")
			require.Equal(t, []string{"1"}, e.Seqs("A"), "stored although the other owner's dead letter blocks its key")
		})
	}
}
