package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listDeadLetters = `SELECT d.event_id, d.seq, d.stream, d.partition, d.partition_key, d.topic, d.reason, d.error, d.attempts, d.blocks, d.created_at,
			d.resolved_at, coalesce(d.resolution, ''), CASE WHEN d.blocks AND d.resolved_at IS NULL THEN (
				SELECT count(*) FROM {schema}.outbox_parked_events k WHERE k.released_at IS NULL
					AND k.stream = d.stream AND k.partition = d.partition AND k.partition_key = d.partition_key) ELSE 0 END
		FROM {schema}.outbox_dead_letters d
		WHERE ($1 = '' OR d.event_id = $1) AND ($2::text IS NULL OR d.stream = $2) AND ($3::int IS NULL OR d.partition = $3)
			AND ($4 = '' OR d.topic = $4) AND ($5::text IS NULL OR d.partition_key = $5) AND ($6 OR d.resolved_at IS NULL)
			AND (d.seq, d.event_id) > ($7, $8) AND (d.blocks OR NOT $10::boolean)
		ORDER BY d.seq, d.event_id LIMIT $9`

	findDeadLetter = `SELECT d.partition FROM {schema}.outbox_dead_letters d WHERE d.event_id = $1`

	lockPartition = `SELECT FROM {schema}.outlane_partitions p WHERE p.partition = $1 FOR UPDATE`

	resolveDeadLetter = `UPDATE {schema}.outbox_dead_letters d SET resolved_at = now(), resolution = $2
		WHERE d.event_id = $1 AND d.partition = $3 AND d.resolved_at IS NULL
		RETURNING d.stream, d.partition_key, d.seq, d.blocks`

	clearEvent = `UPDATE {schema}.outbox_events e SET error = NULL, attempts = 0 WHERE e.id = $1 AND NOT e.processed`

	// releaseParked releases the events of a key, unless a dead letter still blocks it.
	releaseParked = `WITH released AS (
		UPDATE {schema}.outbox_parked_events k SET released_at = now()
		WHERE k.released_at IS NULL AND k.stream = $1 AND k.partition = $2 AND k.partition_key = $3 AND NOT EXISTS (
			SELECT FROM {schema}.outbox_dead_letters d WHERE d.resolved_at IS NULL AND d.blocks
				AND d.stream = $1 AND d.partition = $2 AND d.partition_key = $3)
		RETURNING k.event_id, k.seq
	), cleared AS (
		UPDATE {schema}.outbox_events e SET error = NULL WHERE e.id = ANY (ARRAY(SELECT r.event_id FROM released r)) AND NOT e.processed
	) SELECT count(*), min(r.seq) FROM released r`

	rewindCursor = `UPDATE {schema}.outlane_lanes l SET cursor = least(l.cursor, $3::bigint - 1), saved_at = now() WHERE l.stream = $1 AND l.partition = $2`

	raiseEpoch = `UPDATE {schema}.outlane_partitions p SET epoch = p.epoch + 1 WHERE p.partition = $1`

	notifyWorkers = `SELECT pg_notify('outlane_' || left(md5($1), 16), '')`
)

const defaultListLimit = 1000

// ListDeadLetters lists entries that pass the filter, by seq.
func (s *Store) ListDeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetterEntry, error) {
	if f.Limit <= 0 {
		f.Limit = defaultListLimit
	}
	var list []DeadLetterEntry
	err := s.run(ctx, "list dead letters", call{sql: listDeadLetters,
		args: []any{f.EventID, f.Stream, f.Partition, f.Topic, f.Key, f.Resolved, f.AfterSeq, f.AfterID, f.Limit, f.Blocking},
		row: func(r pgx.Rows) error {
			var d DeadLetterEntry
			var resolvedAt *time.Time
			if err := r.Scan(&d.EventID, &d.Seq, &d.Lane.Stream, &d.Lane.Partition, &d.Key, &d.Topic, &d.Reason, &d.Error, &d.Attempts, &d.Blocks,
				&d.CreatedAt, &resolvedAt, &d.Resolution, &d.Parked); err != nil {
				return err
			}
			d.CreatedAt = d.CreatedAt.UTC()
			if resolvedAt != nil {
				d.ResolvedAt = resolvedAt.UTC()
			}
			list = append(list, d)
			return nil
		}})
	return list, err
}

// RetryDeadLetter gives an event back to be published: its row's error is cleared, attempts start at 0, and events that were parked
// behind it follow, unless another dead letter blocks their key. It returns how many those are. Errors: ErrNoDeadLetter, ErrResolved.
func (s *Store) RetryDeadLetter(ctx context.Context, id string) (released int64, err error) {
	return s.decide(ctx, "retry a dead letter", id, "retried")
}

// SkipDeadLetter lets an event go unpublished for good: its row stays as it is, processed false with its error. Events that were parked behind it are
// released, unless another dead letter blocks their key. It returns how many those are. Errors: ErrNoDeadLetter, ErrResolved.
func (s *Store) SkipDeadLetter(ctx context.Context, id string) (released int64, err error) {
	return s.decide(ctx, "skip a dead letter", id, "skipped")
}

// decide resolves an entry while the partition's row is locked. What its owner must read again lies behind the cursor and under a new epoch, so it
// claims the partition again and reads in order.
func (s *Store) decide(ctx context.Context, what, id, resolution string) (released int64, err error) {
	err = s.inTx(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		released = 0
		var partition int
		err := tx.QueryRow(ctx, s.text(findDeadLetter), id).Scan(&partition)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: %q", ErrNoDeadLetter, id)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.text(lockPartition), partition); err != nil {
			return err
		}
		var lane Lane
		var key string
		var seq int64
		var blocks bool
		err = tx.QueryRow(ctx, s.text(resolveDeadLetter), id, resolution, partition).Scan(&lane.Stream, &key, &seq, &blocks)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: %q", ErrResolved, id)
		}
		if err != nil {
			return err
		}
		lane.Partition = partition
		var lowest *int64
		if blocks {
			if err := tx.QueryRow(ctx, s.text(releaseParked), lane.Stream, lane.Partition, key).Scan(&released, &lowest); err != nil {
				return err
			}
		}
		if resolution == "retried" {
			if _, err := tx.Exec(ctx, s.text(clearEvent), id); err != nil {
				return err
			}
			if lowest == nil || seq < *lowest {
				lowest = &seq
			}
		}
		return s.readAgain(ctx, tx, lane, lowest, lowest != nil || blocks)
	})
	return released, err
}

// readAgain sets a lane's cursor before lowest, and makes the partition's owner claim it again.
func (s *Store) readAgain(ctx context.Context, tx pgx.Tx, lane Lane, lowest *int64, anew bool) error {
	if lowest != nil {
		if _, err := tx.Exec(ctx, s.text(rewindCursor), lane.Stream, lane.Partition, *lowest); err != nil {
			return err
		}
	}
	if !anew {
		return nil
	}
	if _, err := tx.Exec(ctx, s.text(raiseEpoch), lane.Partition); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.text(notifyWorkers), s.name)
	return err
}
