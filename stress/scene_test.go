package stress_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// modes are the two ways to publish.
var modes = map[string]func(*jetstream.StreamConfig){
	"fast": func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true },
	"sync": func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false },
}

const partitions = 4

// routes have dead letters of stream A block their key, and B in order of sequence.
const routes = `routes:
  - {topics: [a.>], stream: A, onDeadLetter: block}
  - {topics: [b.>], stream: B, order: sequence}
`

// sameRoutes are routes, for workers in this process.
func sameRoutes(c *worker.Config) {
	c.Routes = []worker.Route{{Topics: []string{"a.>"}, Stream: "A", Block: true}, {Topics: []string{"b.>"}, Stream: "B", Order: worker.OrderSequence}}
}

// scene is a pool with two streams, A and B, and producers that go on for as long as the test wants.
type scene struct {
	*pooltest.Env
	config string
	stop   func() // the producers
	commit func() // the transaction that begin began
}

func newScene(t *testing.T, mode string, partitions int) *scene {
	t.Helper()
	return newSceneOn(pooltest.New(t, partitions), mode)
}

func newSceneOn(e *pooltest.Env, mode string, change ...func(*jetstream.StreamConfig)) *scene {
	s := &scene{Env: e, stop: func() {}, commit: func() {}}
	s.Strict = []string{"B"}
	s.Stream("A", []string{"a.>"}, append(change, modes[mode])...)
	s.Stream("B", []string{"b.>"}, append(change, modes[mode])...)
	s.config = s.Config(routes)
	return s
}

// newClusteredScene is a scene on three NATS servers, where each stream has three copies.
func newClusteredScene(t *testing.T, mode string) *scene {
	t.Helper()
	e := pooltest.New(t, partitions)
	e.Server.Stop()
	cluster := natstest.StartCluster(t, 3)
	e.NATS, e.JS = cluster.URL, natstest.JetStream(t, cluster.URL)
	return newSceneOn(e, mode, func(c *jetstream.StreamConfig) { c.Replicas = 3 })
}

// worker runs a worker process.
func (s *scene) worker(id string, settings ...string) *pooltest.Process {
	s.T.Helper()
	return s.Process(program, id, append(settings, s.config)...)
}

// keys is how many keys the events have: some share a partition.
const keys = 10

const insertOne = `INSERT INTO outbox_events (id, stream, topic, partition_key, payload) VALUES (gen_random_uuid()::text, $1, $2, $3, '{}')`

// backlog inserts events of every lane, n of each key in each stream.
func (s *scene) backlog(n int) {
	s.T.Helper()
	for i := range keys {
		s.Insert("A", "a.x", fmt.Sprint("key-", i), n)
		s.Insert("B", "b.x", fmt.Sprint("key-", i), n)
	}
}

// aFew is a backlog of a batch for each lane.
const aFew = 8

// begin begins a transaction with events, which become visible at s.commit.
func (s *scene) begin() {
	s.T.Helper()
	ctx := context.WithoutCancel(s.T.Context())
	tx, err := s.DB.Begin(ctx)
	require.NoError(s.T, err)
	s.T.Cleanup(func() { _ = tx.Rollback(ctx) }) // if it came to no commit
	for i := range keys {
		for _, stream := range []string{"A", "B"} {
			_, err = tx.Exec(ctx, insertOne, stream, strings.ToLower(stream)+".x", fmt.Sprint("key-", i))
			require.NoError(s.T, err)
		}
	}
	s.commit = func() { require.NoError(s.T, tx.Commit(ctx)) }
}

// produce starts producers, whose transactions overlap, hold several keys and are sometimes rolled back. They go on until s.stop, or the end.
func (s *scene) produce() {
	s.T.Helper()
	s.stop() // those that there are
	end := make(chan struct{})
	var producers sync.WaitGroup
	for n := range 2 {
		producers.Go(func() { s.producer(end, rand.New(rand.NewPCG(uint64(n), 1))) })
	}
	s.stop = sync.OnceFunc(func() {
		close(end)
		producers.Wait()
	})
	s.T.Cleanup(s.stop)
}

var errRollBack = errors.New("roll back")

func (s *scene) producer(end <-chan struct{}, r *rand.Rand) {
	ctx := context.WithoutCancel(s.T.Context()) // what is under way at the end is either committed or not when stop returns
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for {
		err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
			for range 1 + r.IntN(6) {
				stream, topic := "A", "a.x"
				if r.IntN(2) == 0 {
					stream, topic = "B", "b.x"
				}
				if _, err := tx.Exec(ctx, insertOne, stream, topic, fmt.Sprint("key-", r.IntN(keys))); err != nil {
					return err
				}
			}
			if r.IntN(8) == 0 {
				return errRollBack
			}
			return nil
		})
		if err != nil && !errors.Is(err, errRollBack) {
			s.T.Errorf("produce: %v", err)
			return
		}
		select {
		case <-end:
			return
		case <-pace.C:
		}
	}
}

// poison inserts an event of the n-th key that can never be stored, and later ones of that key.
func (s *scene) poison(n int) {
	s.T.Helper()
	key := fmt.Sprint("key-", n)
	s.Exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers) VALUES ($1, 'A', 'a.x', $2, '{}', '{"Nats-Rollup": "all"}')`,
		"refused-"+key, key)
	s.Insert("A", "a.x", key, 5)
}

// mend makes refused events storable, decides that they are tried again, and waits until there is nothing left to do.
func (s *scene) mend() {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), "UPDATE outbox_events SET headers = NULL WHERE headers IS NOT NULL RETURNING id")
	require.NoError(s.T, err)
	refused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.T, err)
	db, err := store.Open(store.Config{URL: s.URL})
	require.NoError(s.T, err)
	defer db.Close()
	for _, id := range refused {
		_, err = db.RetryDeadLetter(s.T.Context(), id)
		require.NoError(s.T, err)
	}
	s.Drained()
}

// finish stops the producers, and waits until there is nothing left to do.
func (s *scene) finish() {
	s.T.Helper()
	s.stop()
	s.Drained()
}

// verdict requires that every event is stored, once and in order.
func (s *scene) verdict() {
	s.T.Helper()
	report := s.Check("A", "B")
	require.Equal(s.T, s.Count("SELECT count(*) FROM outbox_events"), int(report.Stored), "everything is stored")
	require.Equal(s.T, s.Count("SELECT count(*) FROM outbox_events WHERE processed"), int(report.Stored), "everything is marked")
	require.Zero(s.T, s.Count("SELECT count(*) FROM outbox_events WHERE attempts > 0 OR error IS NOT NULL"))
	require.Zero(s.T, s.Count("SELECT count(*) FROM outbox_dead_letters WHERE event_id NOT LIKE 'refused-%'"))
	require.Zero(s.T, s.Log.Has("stream has lost messages"))
}

// owners requires that in the end each partition has one live owner, whom lease and claim agree on, and that each worker has its share.
func (s *scene) owners(workers ...string) {
	s.T.Helper()
	s.Eventually(0, `SELECT count(*) FROM outlane_partitions p LEFT JOIN outlane_leases l USING (partition) LEFT JOIN outlane_members m ON m.id = l.holder
		WHERE m.id IS NULL OR p.owner IS DISTINCT FROM l.holder`)
	for _, id := range workers {
		s.Eventually(partitions/len(workers), "SELECT count(*) FROM outlane_partitions WHERE owner LIKE $1 || '-%'", id)
	}
}

// lost is what a worker says of partitions that it does not own any more.
var lost = []string{"partition stopped: its epoch has moved on", "partition is lost: another member holds its lease", "partitions lost"}
