package chaos

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/publish"
)

// keeping bounds how long writing down the data may take, and one stream's.
const (
	keeping       = 2 * time.Minute
	keepingStream = 15 * time.Second
)

// keep writes what the tables and streams hold, without payloads, into the folder, as far as it can.
func (r *run) keep(ctx context.Context) {
	if r.box == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keeping)
	defer cancel()
	if err := r.keepTables(ctx); err != nil {
		r.log.say("the tables cannot be kept: %v", err)
	}
	for _, s := range streams {
		if err := r.keepStream(ctx, s.name); err != nil {
			r.log.say("stream %s cannot be kept: %v", s.name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "postgres.log"), []byte(r.box.Postgres.Log()), 0o644); err != nil {
		r.log.say("the log of Postgres cannot be kept: %v", err)
	}
}

func (r *run) keepTables(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.box.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for name, query := range map[string]string{
		"outbox_events": `SELECT seq, id, stream, topic, partition, partition_key, xact, xact_oldest, processed, processed_at, attempts, error, created_at, headers
			FROM outbox_events ORDER BY seq`,
		"outbox_dead_letters":  "TABLE outbox_dead_letters",
		"outbox_parked_events": "TABLE outbox_parked_events",
		"outlane_partitions":   "TABLE outlane_partitions",
		"outlane_lanes":        "TABLE outlane_lanes",
		"outlane_lane_states":  "TABLE outlane_lane_states",
		"outlane_leases":       "TABLE outlane_leases",
		"outlane_members":      "TABLE outlane_members",
		"outlane_horizon":      "TABLE outlane_horizon",
		"pg_stat_activity":     "SELECT * FROM pg_stat_activity",
		"pg_prepared_xacts":    "SELECT * FROM pg_prepared_xacts",
	} {
		if err := keepQuery(ctx, conn, filepath.Join(r.dir, name+".csv"), query); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func keepQuery(ctx context.Context, conn *pgx.Conn, path, query string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = conn.PgConn().CopyTo(ctx, file, "COPY ("+query+") TO STDOUT (FORMAT csv, HEADER)")
	return err
}

// keepStream writes down what messages a stream has, by their headers.
func (r *run) keepStream(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, keepingStream)
	defer cancel()
	handle, err := r.box.JetStream.Stream(ctx, name)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.dir, name+".csv"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	out := csv.NewWriter(file)
	defer out.Flush()
	if err := out.Write([]string{"stream_seq", "time", "id", "seq", "partition", "key"}); err != nil {
		return err
	}
	consumer, err := handle.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for last := handle.CachedInfo().State.LastSeq; last > 0; {
		msg, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		h := msg.Headers()
		err = out.Write([]string{fmt.Sprint(meta.Sequence.Stream), meta.Timestamp.Format(time.RFC3339Nano), h.Get(nats.MsgIdHdr), h.Get(publish.HeaderSeq),
			h.Get(publish.HeaderPartition), h.Get(publish.HeaderKey)})
		if err != nil || meta.Sequence.Stream >= last {
			return err
		}
	}
	return nil
}
