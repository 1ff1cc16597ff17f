package store

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	// claimDurably makes sure that a raised epoch survives a crash even if the database is set to lose commits: two owners must never get the
	// same one.
	claimDurably = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`

	claim = `UPDATE {schema}.outlane_partitions SET epoch = epoch + 1, owner = $1, claimed_at = now()
		WHERE partition IN (SELECT p.partition FROM {schema}.outlane_partitions p WHERE p.partition = ANY ($2::int[]) ORDER BY p.partition
			FOR UPDATE SKIP LOCKED)
		RETURNING partition, epoch`

	claimedLanes = `SELECT l.stream, l.partition, CASE WHEN c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq') THEN l.cursor ELSE 0 END,
			l.stream_seq, c.generation
		FROM {schema}.outlane_lanes l CROSS JOIN {schema}.outlane_config c WHERE l.partition = ANY ($1::int[])`

	claimedKeys = `SELECT d.stream, d.partition, d.partition_key FROM {schema}.outbox_dead_letters d
			WHERE d.resolved_at IS NULL AND d.blocks AND d.partition = ANY ($1::int[])
		UNION
		SELECT k.stream, k.partition, k.partition_key FROM {schema}.outbox_parked_events k
			WHERE k.released_at IS NULL AND k.partition = ANY ($1::int[])`

	readEpochs = `SELECT p.partition, p.epoch FROM {schema}.outlane_partitions p WHERE p.partition = ANY ($1::int[])`
)

const (
	// heldPartitions locks the partitions whose epochs hold against a claim, in the order in which they are given, until the transaction ends.
	heldPartitions = `SELECT p.partition FROM unnest($1::int[], $2::bigint[]) AS c(partition, epoch)
		CROSS JOIN LATERAL (SELECT p.partition FROM {schema}.outlane_partitions p WHERE p.partition = c.partition AND p.epoch = c.epoch FOR SHARE) p`

	// saveCursors saves nothing if the sequence has become another one since the cursors were computed.
	saveCursors = `WITH held AS MATERIALIZED (` + heldPartitions + `),
	saved AS (
		INSERT INTO {schema}.outlane_lanes AS l (stream, partition, cursor, stream_seq)
		SELECT s.stream, s.partition, s.cursor, s.stream_seq
		FROM unnest($3::text[], $4::int[], $5::bigint[], $6::bigint[]) AS s(stream, partition, cursor, stream_seq), {schema}.outlane_config c
		WHERE s.partition = ANY (ARRAY(SELECT h.partition FROM held h)) AND c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq')
		ORDER BY s.partition, s.stream
		ON CONFLICT (stream, partition) DO UPDATE
		SET cursor = excluded.cursor, stream_seq = greatest(l.stream_seq, excluded.stream_seq), saved_at = now()
	)
	SELECT h.partition FROM held h`
)

// Claim makes owner the owner of partitions: their epochs go up by one, in one transaction, whoever had them before. From then on the epochs
// of before are refused. It returns what the owner starts from, by partition. Partitions that do not exist are left out, and those whose row
// somebody else has locked, be it for a moment: one lock must not hold up the others.
func (s *Store) Claim(ctx context.Context, owner string, partitions []int) ([]Claim, error) {
	claims := make(map[int]*Claim, len(partitions))
	err := s.run(ctx, "claim partitions",
		call{sql: claimDurably},
		call{sql: claim, args: []any{owner, partitions}, row: func(r pgx.Rows) error {
			var c Claim
			if err := r.Scan(&c.Partition, &c.Epoch); err != nil {
				return err
			}
			claims[c.Partition] = &c
			return nil
		}},
		call{sql: claimedLanes, args: []any{partitions}, row: func(r pgx.Rows) error {
			var l LaneCursor
			var generation int64
			if err := r.Scan(&l.Stream, &l.Partition, &l.Cursor, &l.StreamSeq, &generation); err != nil {
				return err
			}
			s.seen.note(generation, l.Cursor)
			if c := claims[l.Partition]; c != nil {
				c.Lanes = append(c.Lanes, l)
			}
			return nil
		}},
		call{sql: claimedKeys, args: []any{partitions}, row: func(r pgx.Rows) error {
			var k LaneKey
			if err := r.Scan(&k.Stream, &k.Partition, &k.Key); err != nil {
				return err
			}
			if c := claims[k.Partition]; c != nil {
				c.ParkedKeys = append(c.ParkedKeys, k)
			}
			return nil
		}})
	if err != nil {
		return nil, err
	}
	list := make([]Claim, 0, len(claims))
	for _, p := range slices.Sorted(maps.Keys(claims)) {
		list = append(list, *claims[p])
	}
	return list, nil
}

// Epochs reads the epochs of partitions, those that exist.
func (s *Store) Epochs(ctx context.Context, partitions []int) (map[int]int64, error) {
	epochs := make(map[int]int64, len(partitions))
	err := s.run(ctx, "read epochs", call{sql: readEpochs, args: []any{partitions}, row: func(r pgx.Rows) error {
		var p int
		var epoch int64
		if err := r.Scan(&p, &epoch); err != nil {
			return err
		}
		epochs[p] = epoch
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return epochs, nil
}

// SaveCursors saves how far lanes are settled. A cursor is stored as given, a stream sequence never goes down. Nothing changes for partitions
// that have another epoch; those are returned, ascending.
func (s *Store) SaveCursors(ctx context.Context, saves []CursorSave) (fenced []int, err error) {
	epochs := make(map[int]int64)
	for _, c := range saves {
		epochs[c.Lane.Partition] = max(epochs[c.Lane.Partition], c.Epoch)
	}
	partitions := slices.Sorted(maps.Keys(epochs))
	claimed := make([]int64, len(partitions))
	for i, p := range partitions {
		claimed[i] = epochs[p]
	}
	lanes := make(map[Lane]CursorSave, len(saves))
	stale := make(map[int]bool)
	for _, c := range saves {
		if c.Epoch == epochs[c.Lane.Partition] {
			lanes[c.Lane] = c
		} else {
			stale[c.Lane.Partition] = true
		}
	}
	streams, numbers := make([]string, 0, len(lanes)), make([]int, 0, len(lanes))
	cursors, streamSeqs := make([]int64, 0, len(lanes)), make([]int64, 0, len(lanes))
	for _, c := range lanes {
		streams, numbers = append(streams, c.Lane.Stream), append(numbers, c.Lane.Partition)
		cursors, streamSeqs = append(cursors, c.Cursor), append(streamSeqs, c.StreamSeq)
	}
	held := make(map[int]bool, len(partitions))
	err = s.run(ctx, "save cursors", call{sql: saveCursors, args: []any{partitions, claimed, streams, numbers, cursors, streamSeqs},
		row: func(r pgx.Rows) error {
			var p int
			if err := r.Scan(&p); err != nil {
				return err
			}
			held[p] = true
			return nil
		}})
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if !held[p] || stale[p] {
			fenced = append(fenced, p)
		}
	}
	return fenced, nil
}
