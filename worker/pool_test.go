package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// ceiling bounds every wait of these tests; it is far above what is needed.
const ceiling = 90 * time.Second

// env is a database, a NATS server and some workers between them.
type env struct {
	t    *testing.T
	url  string // of the database, for the tests
	via  string // of the database, for the workers
	nats *natstest.Server
	js   jetstream.JetStream
	db   *pgxpool.Pool
	log  *logBuffer
}

func newEnv(t *testing.T, partitions int) *env {
	t.Helper()
	return newEnvOn(t, pgtest.Migrated(t, partitions))
}

// newEnvAt is newEnv on an empty database.
func newEnvAt(t *testing.T, url string, partitions int) *env {
	t.Helper()
	_, err := migrations.Up(t.Context(), url, "public", migrations.Options{Partitions: partitions})
	require.NoError(t, err)
	return newEnvOn(t, url)
}

func newEnvOn(t *testing.T, url string) *env {
	t.Helper()
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	server := natstest.Start(t)
	return &env{t: t, url: url, via: url, nats: server, js: natstest.JetStream(t, server.URL), db: db, log: &logBuffer{}}
}

// stream creates a stream. The defaults allow fast publishing.
func (e *env) stream(name string, subjects []string, change ...func(*jetstream.StreamConfig)) {
	e.t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: subjects, Duplicates: 2 * time.Minute, AllowBatchPublish: true}
	for _, c := range change {
		c(&cfg)
	}
	_, err := e.js.CreateOrUpdateStream(e.t.Context(), cfg)
	require.NoError(e.t, err)
}

// member is a running worker.
type member struct {
	*worker.Worker
	env    *env
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
}

// start runs a worker until the test ends.
func (e *env) start(change ...func(*worker.Config)) *member {
	e.t.Helper()
	db, err := store.Open(store.Config{URL: e.via, MaxConns: 12})
	require.NoError(e.t, err)
	m := &member{env: e, done: make(chan error, 1)}
	var w atomic.Pointer[worker.Worker]
	broker, err := publish.Connect(publish.Config{URL: e.nats.URL, AckTimeout: 2 * time.Second, OnState: func(connected bool, reason string) {
		if w := w.Load(); w != nil {
			w.BrokerChanged(connected, reason)
		}
	}})
	require.NoError(e.t, err)
	cfg := worker.Config{ID: fmt.Sprintf("w%d", workers.next()), Database: db, Broker: broker, Leases: lease.NewPostgres(db), LeaseDuration: 2 * time.Second,
		DrainTimeout: ceiling, Logger: slog.New(slog.NewJSONHandler(e.log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	m.Worker, err = worker.New(cfg)
	require.NoError(e.t, err)
	w.Store(m.Worker)
	m.BrokerChanged(broker.Connected())
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		m.done <- m.Run(ctx)
		broker.Close()
		db.Close()
	}()
	e.t.Cleanup(m.stop)
	return m
}

// stop drains the worker and waits for it.
func (m *member) stop() {
	m.once.Do(func() {
		m.cancel()
		select {
		case err := <-m.done:
			require.NoError(m.env.t, err)
		case <-time.After(ceiling):
			m.env.t.Error("the worker does not stop")
		}
	})
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

var workers counter

// exec runs a statement in a transaction of its own.
func (e *env) exec(sql string, args ...any) {
	e.t.Helper()
	_, err := e.db.Exec(e.t.Context(), sql, args...)
	require.NoError(e.t, err)
}

// insert adds n events of a key.
func (e *env) insert(stream, topic, key string, n int) {
	e.t.Helper()
	e.exec(insertMany, stream, topic, key, n)
}

const insertMany = `INSERT INTO outbox_events (id, stream, topic, partition_key, payload)
	SELECT gen_random_uuid()::text, nullif($1, ''), $2, $3, jsonb_build_object('n', n) FROM generate_series(1, $4) n`

func (e *env) count(sql string, args ...any) (n int) {
	e.t.Helper()
	require.NoError(e.t, e.db.QueryRow(e.t.Context(), sql, args...).Scan(&n))
	return n
}

// eventually waits for a query to give n.
func (e *env) eventually(n int, sql string, args ...any) {
	e.t.Helper()
	var last any
	ok := func() bool {
		var got int
		if err := e.db.QueryRow(e.t.Context(), sql, args...).Scan(&got); err != nil {
			last = err
			return false
		}
		last = got
		return got == n
	}
	if !waitFor(ok) {
		e.t.Fatalf("%s: got %v, want %d\n%s", sql, last, n, e.log.tail())
	}
}

func waitFor(ok func() bool) bool {
	for end := time.Now().Add(ceiling); time.Now().Before(end); {
		if ok() {
			return true
		}
		<-time.After(20 * time.Millisecond)
	}
	return false
}

// drained waits until nothing waits any more: every event is processed, dead or parked.
func (e *env) drained() {
	e.t.Helper()
	e.eventually(0, `SELECT count(*) FROM outbox_events e WHERE NOT processed
		AND NOT EXISTS (SELECT FROM outbox_dead_letters d WHERE d.event_id = e.id AND coalesce(d.resolution, '') <> 'retried')
		AND NOT EXISTS (SELECT FROM outbox_parked_events p WHERE p.event_id = e.id AND p.released_at IS NULL)`)
}

// stored reads a stream's messages in order.
func (e *env) stored(stream string) []jetstream.RawStreamMsg {
	e.t.Helper()
	s, err := e.js.Stream(e.t.Context(), stream)
	require.NoError(e.t, err)
	info, err := s.Info(e.t.Context())
	require.NoError(e.t, err)
	msgs := make([]jetstream.RawStreamMsg, 0, info.State.Msgs)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := s.GetMsg(e.t.Context(), seq)
		require.NoError(e.t, err)
		msgs = append(msgs, *m)
	}
	return msgs
}

// seqs are the Outlane-Seq of a stream's messages.
func (e *env) seqs(stream string) []string {
	e.t.Helper()
	var seqs []string
	for _, m := range e.stored(stream) {
		seqs = append(seqs, m.Header.Get(publish.HeaderSeq))
	}
	return seqs
}

// check compares the table with the streams by the history checker and requires that nothing is wrong.
func (e *env) check(streams ...string) history.Report {
	e.t.Helper()
	c := history.New(history.Options{})
	rows, err := e.db.Query(e.t.Context(), `SELECT id, seq, stream, partition, partition_key, xact::text::bigint, xact_oldest::text::bigint, processed,
		coalesce((SELECT CASE WHEN d.resolved_at IS NULL THEN 1 WHEN d.resolution = 'retried' THEN 2 ELSE 3 END FROM outbox_dead_letters d WHERE d.event_id = id), 0),
		coalesce((SELECT CASE WHEN p.released_at IS NULL THEN 1 ELSE 2 END FROM outbox_parked_events p WHERE p.event_id = id), 0)
		FROM outbox_events ORDER BY seq`)
	require.NoError(e.t, err)
	events, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (ev history.Event, err error) {
		err = r.Scan(&ev.ID, &ev.Seq, &ev.Stream, &ev.Partition, &ev.Key, &ev.Xact, &ev.XactOldest, &ev.Processed, &ev.DeadLetter, &ev.Parked)
		ev.Target = ev.Stream
		return ev, err
	})
	require.NoError(e.t, err)
	for _, ev := range events {
		require.NoError(e.t, c.Add(ev))
	}
	for _, name := range streams {
		for _, m := range e.stored(name) {
			var seq int64
			var part int
			_, err := fmt.Sscan(m.Header.Get(publish.HeaderSeq)+" "+m.Header.Get(publish.HeaderPartition), &seq, &part)
			require.NoError(e.t, err)
			_, err = c.Store(history.Message{Stream: name, StreamSeq: m.Sequence, ID: m.Header.Get(jetstream.MsgIDHeader), Seq: seq, Partition: part, Time: m.Time})
			require.NoError(e.t, err)
		}
	}
	report := c.Report()
	require.True(e.t, report.Clean(), "%+v\n%s", report, e.log.tail())
	return report
}

// logBuffer keeps what the workers log.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-60):], "")
}

func (b *logBuffer) has(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }
