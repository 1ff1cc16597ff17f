package main

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database, server := pgtest.Migrated(t, 4), natstest.Start(t)
	env := []string{"OUTLANE_DATABASE_URL=" + database, "OUTLANE_NATS_URL=" + server.URL}
	js := natstest.JetStream(t, server.URL)
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	pgtest.Exec(t, database,
		"INSERT INTO outbox_events (id, stream, topic, partition_key) SELECT 'e' || n, 'S', 's.x', 'k' FROM generate_series(1, 3) n",
		"UPDATE outbox_events SET processed = true WHERE id <> 'e3'")
	store := func(id, seq string) {
		msg := nats.NewMsg("s.x")
		msg.Header = nats.Header{nats.MsgIdHdr: {id}, "Outlane-Seq": {seq}, "Outlane-Partition": {"0"}}
		_, err := js.PublishMsg(ctx, msg)
		require.NoError(t, err)
	}
	store("e1", "1")

	r := outlane(t, env, "verify", "-o", "json")
	require.Equal(t, 1, r.code, r.err)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	require.EqualValues(t, 2, report["checked"])
	require.EqualValues(t, 1, report["lost"])
	for _, field := range []string{"doubled", "out_of_order", "unmarked"} {
		require.EqualValues(t, 0, report[field], field)
	}
	require.Contains(t, r.err, "reading the table")

	store("e2", "2")
	r = outlane(t, env, "verify")
	require.Zero(t, r.code, r.out)
	require.Regexp(t, `(?m)^lost +0 `, r.out)

	store("e3", "3")
	r = outlane(t, env, "verify", "--settle", "1ms")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `(?m)^unmarked +1 `, r.out)
	require.Zero(t, outlane(t, env, "verify", "--after", "3").code)

	pgtest.Exec(t, database, "UPDATE outbox_events SET processed = true WHERE id = 'e3'", "DELETE FROM outbox_events WHERE id = 'e1'")
	require.Zero(t, outlane(t, env, "verify").code)
	require.Equal(t, 1, outlane(t, env, "verify", "--complete").code)
}

func TestVerifyThatCannotWork(t *testing.T) {
	t.Parallel()
	r := outlane(t, []string{"OUTLANE_NATS_URL=nats://127.0.0.1:1"}, "verify")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), "database.url")
	r = outlane(t, []string{"OUTLANE_NATS_URL=nats://u:hunter2@127.0.0.1:1", "OUTLANE_DATABASE_URL=" + pgtest.Migrated(t, 4)}, "verify")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "reach NATS")
	require.NotContains(t, r.err, "hunter2")
	require.Equal(t, 2, outlane(t, nil, "verify", "--settle", "0s").code)
	require.Equal(t, 2, outlane(t, nil, "verify", "--first", "0").code)
}

func TestStreamsInOrderOfSequence(t *testing.T) {
	t.Parallel()
	is := strict([]config.Route{{Stream: "A", Order: "sequence"}, {Stream: "B", Order: "commit"}, {Stream: "B", Order: "sequence"}})
	require.True(t, is("A"))
	require.False(t, is("B"), "the first route decides")
	require.False(t, is(""))
}
