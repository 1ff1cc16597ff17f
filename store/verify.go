package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// VerifyRow is what a check of the table against the streams needs of an event.
type VerifyRow struct {
	ID        string
	Seq       int64
	Stream    string
	Topic     string
	Partition int
	Key       string
	// Xact inserted the row; XactOldest was the oldest transaction open at that moment.
	Xact, XactOldest uint64
	Processed        bool

	DeadLetter bool // it has an entry in the dead-letter list
	Resolved   bool // a person has decided about that entry
	Skipped    bool // and gave the event up
	Blocks     bool // the entry blocks its key
	Parked     bool // it waits or waited behind a dead letter
	// Released is the moment, in microseconds, at which it was let go from the parked list, or retried if it blocked its key; 0 if it was not.
	// Events that one decision let go have the same moment.
	Released int64
}

const (
	sqlVerifyRows = `
SELECT e.id, e.seq, e.stream, e.topic, e.partition, e.partition_key, e.xact, e.xact_oldest, e.processed,
       d.event_id IS NOT NULL, d.resolved_at IS NOT NULL, coalesce(d.resolution = 'skipped', false), coalesce(d.blocks, false), p.event_id IS NOT NULL,
       coalesce((extract(epoch FROM CASE WHEN d.blocks AND d.resolution = 'retried' THEN d.resolved_at ELSE p.released_at END) * 1000000)::bigint, 0)
  FROM {schema}.outbox_events e
  LEFT JOIN {schema}.outbox_dead_letters d ON d.event_id = e.id
  LEFT JOIN {schema}.outbox_parked_events p ON p.event_id = e.id`

	// A page is a range of numbers, not a number of rows: so no plan, however wrong the statistics, reads more than a page.
	sqlVerifyPage = sqlVerifyRows + ` WHERE e.seq > $1 AND e.seq <= $2 ORDER BY e.seq`

	sqlCursors = `SELECT l.stream, l.partition, l.cursor FROM {schema}.outlane_lanes l CROSS JOIN {schema}.outlane_config c
 WHERE c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq')
   AND (SELECT max(m.cursor) FROM {schema}.outlane_lanes m) <= (` + pollSequence + `)`

	sqlVerifyNext = `SELECT coalesce(min(seq), 0) FROM {schema}.outbox_events WHERE seq > $1`

	sqlVerifyByID  = sqlVerifyRows + ` WHERE e.id = ANY ($1)`
	sqlVerifyBySeq = sqlVerifyRows + ` WHERE e.seq = ANY ($1)`
)

// VerifyPage returns the events with after < seq <= upto, in order. Every page is a snapshot of its own.
func (s *Store) VerifyPage(ctx context.Context, after, upto int64) ([]VerifyRow, error) {
	return s.verifyRows(ctx, nil, sqlVerifyPage, after, upto)
}

// VerifyNext returns the lowest seq above after, 0 if there is none: where to go on behind an empty page.
func (s *Store) VerifyNext(ctx context.Context, after int64) (seq int64, err error) {
	err = s.run(ctx, "find the next event to verify", call{sql: sqlVerifyNext, args: []any{after}, row: func(r pgx.Rows) error { return r.Scan(&seq) }})
	return seq, err
}

// VerifyByID returns the events with these ids, in no order.
func (s *Store) VerifyByID(ctx context.Context, ids []string) ([]VerifyRow, error) {
	return s.verifyRows(ctx, nil, sqlVerifyByID, ids)
}

// VerifyBySeq returns the events with these numbers, in no order.
func (s *Store) VerifyBySeq(ctx context.Context, seqs []int64) ([]VerifyRow, error) {
	return s.verifyRows(ctx, nil, sqlVerifyBySeq, seqs)
}

// Cursors returns the saved cursor of every lane that has one. There are none while they count by another sequence, or one that went backwards.
func (s *Store) Cursors(ctx context.Context) (map[Lane]int64, error) {
	cursors := make(map[Lane]int64)
	err := s.run(ctx, "read the cursors", call{sql: sqlCursors, row: func(r pgx.Rows) error {
		var l Lane
		var cursor int64
		err := r.Scan(&l.Stream, &l.Partition, &cursor)
		cursors[l] = cursor
		return err
	}})
	return cursors, err
}

func (s *Store) verifyRows(ctx context.Context, rows []VerifyRow, sql string, args ...any) ([]VerifyRow, error) {
	err := s.run(ctx, "read events to verify", call{sql: sql, args: args, row: func(r pgx.Rows) error {
		rows = append(rows, VerifyRow{})
		v := &rows[len(rows)-1]
		return r.Scan(&v.ID, &v.Seq, &v.Stream, &v.Topic, &v.Partition, &v.Key, &v.Xact, &v.XactOldest, &v.Processed,
			&v.DeadLetter, &v.Resolved, &v.Skipped, &v.Blocks, &v.Parked, &v.Released)
	}})
	return rows, err
}
