package worker_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
)

// BenchmarkDrain is one worker that drains a backlog of b.N events of 200 bytes, from Postgres to a NATS server that is a process of its own: an
// operation is an event. What a worker does all the time counts too, so it means little for few events:
//
//	go test ./worker -run '^$' -bench Drain -benchtime 100000x -count 6
func BenchmarkDrain(b *testing.B) {
	server := natstest.StartProcess(b)
	url := pgtest.Migrated(b, 64)
	db, err := pgxpool.New(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(db.Close)
	e := &pooltest.Env{T: b, URL: url, Via: url, NATS: server.URL, JS: natstest.JetStream(b, server.URL), DB: db, Log: &pooltest.Log{}}
	e.Stream("A", []string{"a.>"})
	e.Exec(`INSERT INTO outbox_events (stream, topic, payload)
		SELECT 'A', 'a.event', jsonb_build_object('n', n, 'team_id', 't_' || n % 5000, 'text', repeat('x', 150)) FROM generate_series(1, $1::int) n`, b.N)
	// The worker is up and owns everything before it learns of the backlog, by the sequence.
	e.Exec("SELECT setval('outbox_events_seq', 1, false)")
	e.Exec("VACUUM ANALYZE outbox_events")
	w := e.Start()
	e.Eventually(64, "SELECT count(*) FROM outlane_partitions WHERE owner IS NOT NULL")

	b.ReportAllocs()
	b.ResetTimer()
	e.Exec("SELECT setval('outbox_events_seq', $1), pg_notify('outlane_' || left(md5('public'), 16), '')", b.N)
	var info *jetstream.StreamInfo
	require.True(b, pooltest.WaitFor(func() bool {
		stream, err := e.JS.Stream(b.Context(), "A")
		require.NoError(b, err)
		info = stream.CachedInfo()
		return info.State.Msgs >= uint64(b.N)
	}))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/info.State.LastTime.Sub(info.State.FirstTime).Seconds(), "events/s")
	w.Stop()
}
