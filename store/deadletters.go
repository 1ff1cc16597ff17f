package store

import (
	"context"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const (
	// heldPartition locks one partition against a claim, if its epoch holds, until the transaction ends.
	heldPartition = `SELECT p.partition FROM {schema}.outlane_partitions p WHERE p.partition = $1 AND p.epoch = $2 FOR SHARE`

	attempt = `WITH held AS MATERIALIZED (` + heldPartition + `), noted AS (
		UPDATE {schema}.outbox_events e SET error = $4, attempts = $5 WHERE e.id = $3 AND NOT e.processed AND EXISTS (SELECT FROM held)
	) SELECT count(*) FROM held`

	deadLetter = `WITH held AS MATERIALIZED (` + heldPartition + `), noted AS (
		UPDATE {schema}.outbox_events e SET error = $4, attempts = $5 WHERE e.id = $3 AND NOT e.processed AND EXISTS (SELECT FROM held)
	), listed AS (
		INSERT INTO {schema}.outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks)
		SELECT $3, $6, $7, h.partition, $8, $9, $10, $4, $5, $11 FROM held h
		ON CONFLICT (event_id) DO UPDATE SET reason = excluded.reason, error = excluded.error, attempts = excluded.attempts, blocks = excluded.blocks,
			seq = excluded.seq, stream = excluded.stream, partition = excluded.partition, created_at = now(), resolved_at = NULL, resolution = NULL
	) SELECT count(*) FROM held`

	park = `WITH held AS MATERIALIZED (` + heldPartition + `), listed AS (
		INSERT INTO {schema}.outbox_parked_events (event_id, seq, stream, partition, partition_key)
		SELECT k.id, k.seq, $4, h.partition, k.key FROM unnest($3::text[], $5::bigint[], $6::text[]) AS k(id, seq, key), held h
		ON CONFLICT (event_id) DO UPDATE SET seq = excluded.seq, stream = excluded.stream, partition = excluded.partition, parked_at = now(), released_at = NULL
	), noted AS (
		UPDATE {schema}.outbox_events e SET error = 'parked behind dead letter ' || coalesce((
			SELECT d.event_id FROM {schema}.outbox_dead_letters d WHERE d.resolved_at IS NULL AND d.blocks
				AND d.stream = e.stream AND d.partition = e.partition AND d.partition_key = e.partition_key ORDER BY d.seq LIMIT 1), '?')
		WHERE e.id = ANY ($3::text[]) AND NOT e.processed AND EXISTS (SELECT FROM held)
	) SELECT count(*) FROM held`
)

// errorBytes is how much of an error's text is kept.
const errorBytes = 8 << 10

// Attempt notes that publishing an event has failed and will be tried again. It returns ErrFenced if the partition has another epoch.
func (s *Store) Attempt(ctx context.Context, partition int, epoch int64, id string, attempts int, errText string) error {
	return s.fenced(ctx, "note an attempt", call{sql: attempt, args: []any{partition, epoch, id, clean(errText), saturate(attempts)}})
}

// DeadLetter lists an event as a dead letter and notes the error on its row, whose processed stays false. An entry that was resolved before is
// opened again. It returns ErrFenced if the partition has another epoch.
func (s *Store) DeadLetter(ctx context.Context, d DeadLetter) error {
	e := d.Event
	return s.fenced(ctx, "list a dead letter", call{sql: deadLetter, args: []any{e.Partition, d.Epoch, e.ID, clean(d.Error), saturate(d.Attempts),
		e.Seq, e.Stream, e.Key, e.Topic, clean(d.Reason), d.Block}})
}

// Park sets events of a lane aside, because an earlier one of their key is a dead letter that blocks. It returns ErrFenced if the partition
// has another epoch.
func (s *Store) Park(ctx context.Context, epoch int64, lane Lane, events []Event) error {
	ids, seqs, keys := make([]string, 0, len(events)), make([]int64, 0, len(events)), make([]string, 0, len(events))
	known := make(map[string]bool, len(events))
	for _, e := range events {
		if !known[e.ID] {
			known[e.ID] = true
			ids, seqs, keys = append(ids, e.ID), append(seqs, e.Seq), append(keys, e.Key)
		}
	}
	return s.fenced(ctx, "park events", call{sql: park, args: []any{lane.Partition, epoch, ids, lane.Stream, seqs, keys}})
}

// fenced runs a statement that counts the partitions it held.
func (s *Store) fenced(ctx context.Context, what string, c call) error {
	held := 0
	c.row = func(r pgx.Rows) error { return r.Scan(&held) }
	if err := s.run(ctx, what, c); err != nil {
		return err
	}
	if held == 0 {
		return s.failed(what, ErrFenced)
	}
	return nil
}

// clean makes any text one that Postgres takes and people can read.
func clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) <= errorBytes {
		return text
	}
	n := errorBytes
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// saturate is n as a Postgres int.
func saturate(n int) int32 { return int32(max(0, min(n, math.MaxInt32))) }
