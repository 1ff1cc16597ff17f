package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// lag jumps from lane to lane in the index, and in each lane reads what waits above the cursor, up to the cap.
const lag = `WITH RECURSIVE lanes(stream, partition) AS (
		(SELECT e.stream, e.partition FROM {schema}.outbox_events e ORDER BY e.stream, e.partition LIMIT 1)
		UNION ALL
		SELECT n.stream, n.partition FROM lanes l CROSS JOIN LATERAL (
			SELECT e.stream, e.partition FROM {schema}.outbox_events e
			WHERE (e.stream, e.partition) > (l.stream, l.partition) ORDER BY e.stream, e.partition LIMIT 1) n
	), config AS MATERIALIZED (
		SELECT c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq') AS same FROM {schema}.outlane_config c
	)
	SELECT l.stream, l.partition, w.events, w.lowest, o.created_at, extract(epoch FROM greatest(now() - o.created_at, interval '0'))::float8,
		(SELECT count(*) FROM {schema}.outbox_dead_letters d WHERE d.resolved_at IS NULL AND d.stream = l.stream AND d.partition = l.partition),
		(SELECT count(*) FROM {schema}.outbox_parked_events k WHERE k.released_at IS NULL AND k.stream = l.stream AND k.partition = l.partition)
	FROM lanes l
	CROSS JOIN LATERAL (SELECT coalesce((SELECT c.cursor FROM {schema}.outlane_lanes c, config
		WHERE c.stream = l.stream AND c.partition = l.partition AND config.same), 0) AS seq OFFSET 0) c
	CROSS JOIN LATERAL (SELECT count(*) AS events, min(r.seq) AS lowest FROM (
		SELECT e.seq FROM {schema}.outbox_events e
		WHERE e.stream = ANY (ARRAY[l.stream]) AND e.partition = l.partition AND e.seq > c.seq AND NOT e.processed AND ` + alive + `
		ORDER BY e.stream, e.seq LIMIT $1::bigint + 1) r) w
	LEFT JOIN LATERAL (SELECT ` + plainTime + ` AS created_at FROM {schema}.outbox_events e
		WHERE e.stream = l.stream AND e.partition = l.partition AND e.seq = w.lowest AND NOT e.processed AND ` + alive + ` LIMIT 1) o ON true`

const (
	saveLaneStates = `INSERT INTO {schema}.outlane_lane_states AS s (stream, partition, member, reason, detail, since)
		SELECT n.stream, n.partition, n.member, n.reason, n.detail, n.since
		FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::bigint[])
			AS n(stream, partition, member, reason, detail, since, epoch)
		CROSS JOIN LATERAL (SELECT FROM {schema}.outlane_partitions p WHERE p.partition = n.partition AND p.owner = n.member AND p.epoch = n.epoch) p
		WHERE n.reason <> ''
		ON CONFLICT (stream, partition) DO UPDATE
		SET member = excluded.member, reason = excluded.reason, detail = excluded.detail, since = excluded.since, saved_at = now()`

	dropLaneStates = `DELETE FROM {schema}.outlane_lane_states s
		USING unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) AS n(stream, partition, member, epoch)
		WHERE s.stream = n.stream AND s.partition = n.partition AND s.member = n.member
			AND EXISTS (SELECT FROM {schema}.outlane_partitions p WHERE p.partition = n.partition AND p.epoch = n.epoch)`

	readLaneStates = `SELECT s.stream, s.partition, s.member, p.epoch, s.reason, s.detail, s.since
		FROM {schema}.outlane_partitions p CROSS JOIN LATERAL (SELECT * FROM {schema}.outlane_lane_states s
			WHERE s.partition = p.partition AND s.member = p.owner AND s.saved_at >= p.claimed_at) s
		ORDER BY s.stream, s.partition`
)

// Lag says for each lane that has rows in the table how far it is behind, by stream and partition. Waiting events are counted up to limit for
// each lane. Its cost grows with the lanes and what waits in them, not with what was processed.
func (s *Store) Lag(ctx context.Context, limit int) ([]LaneLag, error) {
	var list []LaneLag
	err := s.run(ctx, "measure the lag", call{sql: lag, args: []any{limit}, row: func(r pgx.Rows) error {
		var l LaneLag
		var lowest *int64
		var createdAt *time.Time
		var age *float64
		if err := r.Scan(&l.Lane.Stream, &l.Lane.Partition, &l.Events, &lowest, &createdAt, &age, &l.DeadLetters, &l.Parked); err != nil {
			return err
		}
		if l.Events > int64(limit) {
			l.Events, l.AtLeast = int64(limit), true
		}
		if lowest != nil {
			l.OldestSeq = *lowest
		}
		if createdAt != nil {
			l.OldestCreatedAt = createdAt.UTC()
		}
		if age != nil {
			l.OldestAge = time.Duration(min(*age, maxAge.Seconds()) * float64(time.Second))
		}
		list = append(list, l)
		return nil
	}})
	return list, err
}

// maxAge is what the age of an event from some other century is cut to.
const maxAge = 100 * 365 * 24 * time.Hour

// SaveLaneStates writes down what lanes wait for. What is said under another epoch than the partition has now is left out.
func (s *Store) SaveLaneStates(ctx context.Context, states []LaneState) error {
	latest := make(map[Lane]LaneState, len(states))
	for _, l := range states {
		if l.Epoch >= latest[l.Lane].Epoch {
			latest[l.Lane] = l
		}
	}
	var streams, members, reasons, details []string
	var partitions []int
	var since []time.Time
	var epochs []int64
	for lane, l := range latest {
		streams, partitions, members = append(streams, lane.Stream), append(partitions, lane.Partition), append(members, l.Member)
		reasons, details, since = append(reasons, clean(l.Reason)), append(details, clean(l.Detail)), append(since, l.Since)
		epochs = append(epochs, l.Epoch)
	}
	return s.run(ctx, "save the lanes' states",
		call{sql: dropLaneStates, args: []any{streams, partitions, members, epochs}},
		call{sql: saveLaneStates, args: []any{streams, partitions, members, reasons, details, since, epochs}})
}

// LaneStates lists what lanes wait for, as their owners wrote it since they claimed them.
func (s *Store) LaneStates(ctx context.Context) ([]LaneState, error) {
	var list []LaneState
	err := s.run(ctx, "read the lanes' states", call{sql: readLaneStates, row: func(r pgx.Rows) error {
		var l LaneState
		if err := r.Scan(&l.Lane.Stream, &l.Lane.Partition, &l.Member, &l.Epoch, &l.Reason, &l.Detail, &l.Since); err != nil {
			return err
		}
		l.Since = l.Since.UTC()
		list = append(list, l)
		return nil
	}})
	return list, err
}
