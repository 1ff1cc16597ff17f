package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// mark has no join that the planner could turn around: the partitions whose epochs hold are read first, then the rows are found by their
// ids (partition + 0 is what no index can find). It returns those partitions.
const mark = `WITH held AS MATERIALIZED (
		SELECT p.partition FROM unnest($2::int[], $3::bigint[]) AS c(partition, epoch)
		CROSS JOIN LATERAL (SELECT p.partition FROM {schema}.outlane_partitions p WHERE p.partition = c.partition AND p.epoch = c.epoch) p
	), marked AS (
		UPDATE {schema}.outbox_events e SET processed = true, processed_at = now(), error = NULL
		WHERE e.id = ANY ($1::text[]) AND NOT e.processed AND e.partition + 0 = ANY (ARRAY(SELECT h.partition FROM held h))
	)
	SELECT h.partition FROM held h`

// markPatience is how long a mark waits for a row that somebody has locked: others' marks wait behind it meanwhile.
const markPatience = `SELECT set_config('lock_timeout', '1s', true)`

// Mark notes that events were acknowledged, in one statement for any number of lanes. Nothing changes for lanes whose partition has another
// epoch; those are returned. Marking again what is marked does nothing. If a row is locked for more than a second, it fails and changes nothing.
func (s *Store) Mark(ctx context.Context, marks []Mark) (fenced []Lane, err error) {
	epochs := make(map[int]int64, len(marks))
	for _, m := range marks {
		epochs[m.Lane.Partition] = max(epochs[m.Lane.Partition], m.Epoch)
	}
	partitions := make([]int, 0, len(epochs))
	claimed := make([]int64, 0, len(epochs))
	for p, epoch := range epochs {
		partitions, claimed = append(partitions, p), append(claimed, epoch)
	}
	ids := []string{}
	for _, m := range marks {
		if m.Epoch == epochs[m.Lane.Partition] {
			ids = append(ids, m.IDs...)
		}
	}
	held := make(map[int]bool, len(epochs))
	err = s.run(ctx, "mark events", call{sql: markPatience}, call{sql: mark, args: []any{ids, partitions, claimed}, row: func(r pgx.Rows) error {
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
	for _, m := range marks {
		if !held[m.Lane.Partition] || m.Epoch != epochs[m.Lane.Partition] {
			fenced = append(fenced, m.Lane)
		}
	}
	return fenced, nil
}
