// Package pooltest gives tests a pool: a Postgres database, a NATS server and workers in this process between them, and the history checker over what
// they did. Everything ends with the test. What fails shows the workers' last log lines.
package pooltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// Ceiling bounds every wait of these tests; it is far above what is needed.
const Ceiling = 90 * time.Second

// Env is a database, a NATS server and some workers between them.
type Env struct {
	T    testing.TB
	URL  string // of the database, for the test
	Via  string // of the database, for the workers
	NATS string // the server's URL
	JS   jetstream.JetStream
	DB   *pgxpool.Pool
	Log  *Log

	Strict []string         // the streams whose route is in order of sequence
	Server *natstest.Server // nil if the test brought a server of its own

	Cluster   *kubetest.Cluster // where the workers keep their leases, in Namespace; nil: in the database
	Namespace string
}

// New makes an Env on a fresh database with so many partitions, and a NATS server of its own.
func New(t testing.TB, partitions int) *Env {
	t.Helper()
	return newOn(t, pgtest.Migrated(t, partitions))
}

// NewAt is New on an empty database.
func NewAt(t testing.TB, url string, partitions int) *Env {
	t.Helper()
	_, err := migrations.Up(t.Context(), url, "public", migrations.Options{Partitions: partitions})
	require.NoError(t, err)
	return newOn(t, url)
}

func newOn(t testing.TB, url string) *Env {
	t.Helper()
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	server := natstest.Start(t)
	return &Env{T: t, URL: url, Via: url, NATS: server.URL, Server: server, JS: natstest.JetStream(t, server.URL), DB: db, Log: &Log{}}
}

// Stream creates a stream. The defaults allow fast publishing.
func (e *Env) Stream(name string, subjects []string, change ...func(*jetstream.StreamConfig)) {
	e.T.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: subjects, Duplicates: 2 * time.Minute, AllowBatchPublish: true}
	for _, c := range change {
		c(&cfg)
	}
	_, err := e.JS.CreateOrUpdateStream(e.T.Context(), cfg)
	require.NoError(e.T, err)
}

// Member is a running worker.
type Member struct {
	*worker.Worker
	env    *Env
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
}

// Start runs a worker until the test ends.
func (e *Env) Start(change ...func(*worker.Config)) *Member {
	e.T.Helper()
	var broker *publish.Broker
	db, err := store.Open(store.Config{URL: e.Via, MaxConns: 12, LargestBody: func() int64 { return broker.MaxPayload() }})
	require.NoError(e.T, err)
	m := &Member{env: e, done: make(chan error, 1)}
	var w atomic.Pointer[worker.Worker]
	broker, err = publish.Connect(publish.Config{URL: e.NATS, AckTimeout: 2 * time.Second, OnState: func(connected bool, reason string) {
		if w := w.Load(); w != nil {
			w.BrokerChanged(connected, reason)
		}
	}})
	require.NoError(e.T, err)
	cfg := worker.Config{ID: fmt.Sprintf("w%d", workers.next()), Database: db, Broker: broker, Leases: e.leases(db), LeaseDuration: 2 * time.Second,
		DrainTimeout: Ceiling, Logger: slog.New(slog.NewJSONHandler(e.Log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	m.Worker, err = worker.New(cfg)
	require.NoError(e.T, err)
	w.Store(m.Worker)
	m.BrokerChanged(broker.Connected())
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		m.done <- m.Run(ctx)
		broker.Close()
		db.Close()
	}()
	e.T.Cleanup(m.Stop)
	return m
}

// Stop drains the worker and waits for it.
func (m *Member) Stop() {
	m.once.Do(func() {
		m.cancel()
		select {
		case err := <-m.done:
			require.NoError(m.env.T, err)
		case <-time.After(Ceiling):
			m.env.T.Error("the worker does not stop")
		}
	})
}

// Ended waits for a worker that ends by itself, and returns why.
func (m *Member) Ended() (err error) {
	m.once.Do(func() {
		select {
		case err = <-m.done:
		case <-time.After(Ceiling):
			m.env.T.Error("the worker does not end")
		}
	})
	return err
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

// Exec runs a statement in a transaction of its own.
func (e *Env) Exec(sql string, args ...any) {
	e.T.Helper()
	_, err := e.DB.Exec(e.T.Context(), sql, args...)
	require.NoError(e.T, err)
}

// Insert adds n events of a key.
func (e *Env) Insert(stream, topic, key string, n int) {
	e.T.Helper()
	e.Exec(InsertMany, stream, topic, key, n)
}

// InsertMany inserts $4 events of stream $1 (none if empty), topic $2 and key $3.
const InsertMany = `INSERT INTO outbox_events (id, stream, topic, partition_key, payload)
	SELECT gen_random_uuid()::text, nullif($1, ''), $2, $3, jsonb_build_object('n', n) FROM generate_series(1, $4) n`

// Count is the number that a query gives.
func (e *Env) Count(sql string, args ...any) (n int) {
	e.T.Helper()
	require.NoError(e.T, e.DB.QueryRow(e.T.Context(), sql, args...).Scan(&n))
	return n
}

// Eventually waits for a query to give n.
func (e *Env) Eventually(n int, sql string, args ...any) {
	e.T.Helper()
	var last any
	ok := func() bool {
		var got int
		if err := e.DB.QueryRow(e.T.Context(), sql, args...).Scan(&got); err != nil {
			last = err
			return false
		}
		last = got
		return got == n
	}
	if !WaitFor(ok) {
		e.T.Fatalf("%s: got %v, want %d\n%s", sql, last, n, e.Log.Tail())
	}
}

// WaitFor waits until ok, and says whether it came to that before Ceiling.
func WaitFor(ok func() bool) bool {
	for end := time.Now().Add(Ceiling); time.Now().Before(end); {
		if ok() {
			return true
		}
		<-time.After(20 * time.Millisecond)
	}
	return false
}

// Drained waits until nothing waits any more: every event is processed, dead or parked.
func (e *Env) Drained() {
	e.T.Helper()
	e.Eventually(0, `SELECT count(*) FROM outbox_events e WHERE NOT processed
		AND NOT EXISTS (SELECT FROM outbox_dead_letters d WHERE d.event_id = e.id AND coalesce(d.resolution, '') <> 'retried')
		AND NOT EXISTS (SELECT FROM outbox_parked_events p WHERE p.event_id = e.id AND p.released_at IS NULL)`)
}

// Stored reads a stream's messages in order.
func (e *Env) Stored(stream string) []jetstream.RawStreamMsg {
	e.T.Helper()
	s, err := e.JS.Stream(e.T.Context(), stream)
	require.NoError(e.T, err)
	info, err := s.Info(e.T.Context())
	require.NoError(e.T, err)
	msgs := make([]jetstream.RawStreamMsg, 0, info.State.Msgs)
	if info.State.Msgs == 0 {
		return msgs
	}
	consumer, err := s.CreateConsumer(e.T.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true})
	require.NoError(e.T, err)
	for last := uint64(0); last < info.State.LastSeq; {
		var failed error
		require.True(e.T, WaitFor(func() bool {
			batch, err := consumer.Fetch(min(int(info.State.LastSeq-last), 500))
			require.NoError(e.T, err)
			for m := range batch.Messages() {
				at, err := m.Metadata()
				require.NoError(e.T, err)
				last = at.Sequence.Stream
				msgs = append(msgs, jetstream.RawStreamMsg{Subject: m.Subject(), Sequence: last, Header: m.Headers(), Data: m.Data(), Time: at.Timestamp})
			}
			failed = batch.Error()
			// In a cluster the server that we are connected to may not have heard of the consumer yet, which is on another one.
			return !errors.Is(failed, nats.ErrNoResponders)
		}), "no server has the consumer")
		require.NoError(e.T, failed)
	}
	return msgs
}

// Seqs are the Outlane-Seq of a stream's messages.
func (e *Env) Seqs(stream string) []string {
	e.T.Helper()
	var seqs []string
	for _, m := range e.Stored(stream) {
		seqs = append(seqs, m.Header.Get(publish.HeaderSeq))
	}
	return seqs
}

// Check compares the table with the streams by the history checker and requires that nothing is wrong.
func (e *Env) Check(streams ...string) history.Report {
	e.T.Helper()
	c := history.New(history.Options{})
	rows, err := e.DB.Query(e.T.Context(), `SELECT id, e.seq, e.stream, e.partition, e.partition_key, xact::text::bigint, xact_oldest::text::bigint, processed,
			CASE WHEN d.event_id IS NULL THEN 0 WHEN d.resolved_at IS NULL THEN 1 WHEN d.resolution = 'retried' THEN 2 ELSE 3 END,
			CASE WHEN p.event_id IS NULL THEN CASE WHEN d.blocks AND d.resolution = 'retried' THEN 2 ELSE 0 END WHEN p.released_at IS NULL THEN 1 ELSE 2 END,
			coalesce((extract(epoch FROM CASE WHEN d.blocks AND d.resolution = 'retried' THEN d.resolved_at ELSE p.released_at END) * 1000000)::bigint, 0)
		FROM outbox_events e LEFT JOIN outbox_dead_letters d ON d.event_id = id LEFT JOIN outbox_parked_events p ON p.event_id = id ORDER BY e.seq`)
	require.NoError(e.T, err)
	events, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (ev history.Event, err error) {
		err = r.Scan(&ev.ID, &ev.Seq, &ev.Stream, &ev.Partition, &ev.Key, &ev.Xact, &ev.XactOldest, &ev.Processed, &ev.DeadLetter, &ev.Parked, &ev.Release)
		ev.Target, ev.Strict = ev.Stream, slices.Contains(e.Strict, ev.Stream)
		return ev, err
	})
	require.NoError(e.T, err)
	for _, ev := range events {
		require.NoError(e.T, c.Add(ev))
	}
	for _, name := range streams {
		for _, m := range e.Stored(name) {
			var seq int64
			var part int
			_, err := fmt.Sscan(m.Header.Get(publish.HeaderSeq)+" "+m.Header.Get(publish.HeaderPartition), &seq, &part)
			require.NoError(e.T, err)
			_, err = c.Store(history.Message{Stream: name, StreamSeq: m.Sequence, ID: m.Header.Get(jetstream.MsgIDHeader), Seq: seq, Partition: part, Time: m.Time})
			require.NoError(e.T, err)
		}
	}
	report := c.Report()
	require.True(e.T, report.Clean(), "%+v\n%s", report, e.Log.Tail())
	return report
}

// Log keeps what the workers log.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Write takes a line.
func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

// Tail is the last lines.
func (b *Log) Tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-60):], "")
}

// find is the first line that has text, empty if none has.
func (b *Log) find(text string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if strings.Contains(l, text) {
			return l
		}
	}
	return ""
}

// Has counts the lines that have text.
func (b *Log) Has(text string) int {
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
