package verify_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/verify"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// fixture is a real table and a real stream, in which a test does by hand what the pool does, and what it must not do.
type fixture struct {
	t    *testing.T
	ctx  context.Context
	db   *pgx.Conn
	nc   *nats.Conn
	js   jetstream.JetStream
	opts verify.Options
}

func newFixture(t *testing.T, streams ...jetstream.StreamConfig) *fixture {
	t.Parallel()
	return newFixtureOn(t, natstest.Start(t), streams...)
}

func newFixtureOn(t *testing.T, server *natstest.Server, streams ...jetstream.StreamConfig) *fixture {
	url := pgtest.Migrated(t, 4)
	nc := natstest.Connect(t, server.URL)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	f := &fixture{t: t, ctx: t.Context(), db: pgtest.Connect(t, url), nc: nc, js: js}
	if len(streams) == 0 {
		streams = []jetstream.StreamConfig{{Name: "S", Subjects: []string{"s.>"}}}
	}
	for _, cfg := range streams {
		_, err := js.CreateStream(f.ctx, cfg)
		require.NoError(t, err)
	}
	s, err := store.Open(store.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	f.opts = verify.Options{Store: s, JetStream: js, Settle: time.Millisecond}
	return f
}

// insert makes an event of stream S in a transaction of its own.
func (f *fixture) insert(id, key string) { f.insertTo("S", "s.x", id, key) }

func (f *fixture) insertTo(stream, topic, id, key string) {
	f.t.Helper()
	f.exec("INSERT INTO outbox_events (id, stream, topic, partition_key, payload) VALUES ($1, nullif($2, ''), $3, $4, '{}')", id, stream, topic, key)
	// As if no other transaction had been open: those of other tests on the same server are.
	f.exec("UPDATE outbox_events SET xact_oldest = xact WHERE id = $1", id)
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.db.Exec(f.ctx, sql, args...)
	require.NoError(f.t, err)
}

// publish stores events as a worker does.
func (f *fixture) publish(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		msg := f.message(id)
		ack, err := f.js.PublishMsg(f.ctx, msg)
		require.NoError(f.t, err)
		require.False(f.t, ack.Duplicate)
	}
}

func (f *fixture) message(id string) *nats.Msg {
	f.t.Helper()
	var (
		topic, stream string
		seq           int64
		part          int
	)
	row := f.db.QueryRow(f.ctx, "SELECT topic, stream, seq, partition FROM outbox_events WHERE id = $1", id)
	require.NoError(f.t, row.Scan(&topic, &stream, &seq, &part))
	msg := nats.NewMsg(topic)
	msg.Data = []byte(`{}`)
	msg.Header.Set(nats.MsgIdHdr, publish.EncodeID(id))
	if stream != "" {
		msg.Header.Set(nats.ExpectedStreamHdr, stream)
	}
	msg.Header.Set("Outlane-Seq", strconv.FormatInt(seq, 10))
	msg.Header.Set("Outlane-Partition", strconv.Itoa(part))
	return msg
}

func (f *fixture) mark(ids ...string) {
	f.t.Helper()
	f.exec("UPDATE outbox_events SET processed = true, processed_at = now() WHERE id = ANY ($1)", ids)
}

// deliver stores and marks events.
func (f *fixture) deliver(ids ...string) {
	f.t.Helper()
	f.publish(ids...)
	f.mark(ids...)
}

// many inserts events e1, e2 … of one key, each in its own transaction, and returns their ids.
func (f *fixture) many(n int) []string {
	f.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("e", i+1)
		f.insert(ids[i], "k")
	}
	return ids
}

func (f *fixture) run() verify.Report {
	f.t.Helper()
	r, err := verify.Run(f.ctx, f.opts)
	require.NoError(f.t, err)
	return r
}

// on runs something once, when a step of the check has been reported for the first time.
func (f *fixture) on(step string, do func()) {
	done := false
	f.opts.Progress = func(p verify.Progress) {
		if p.Step == step && !done {
			done = true
			do()
		}
	}
}
