package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const (
	markHeld = `WITH held AS MATERIALIZED (
		SELECT p.partition FROM unnest($2::int[], $3::bigint[]) AS c(partition, epoch)
		CROSS JOIN LATERAL (SELECT p.partition FROM {schema}.outlane_partitions p WHERE p.partition = c.partition AND p.epoch = c.epoch) p
	), marked AS (
		UPDATE {schema}.outbox_events e SET processed = true, processed_at = now(), error = NULL `

	markEnd = ` AND NOT e.processed AND e.partition + 0 = ANY (ARRAY(SELECT h.partition FROM held h))
		RETURNING 1
	)
	SELECT (SELECT count(*) FROM marked), h.partition FROM held h`

	// mark has no join that the planner could turn around: the partitions whose epochs hold are read first, then the rows are found by their
	// ids (partition + 0 is what no index can find). It returns those partitions, and how many rows it has marked.
	mark = markHeld + `WHERE e.id = ANY ($1::text[])` + markEnd

	// markPlaces finds the rows where they were read, without an index, for half the cost. A row that was updated since is elsewhere, and a
	// place may have got another row, so the id must be the one that it was. (IS NOT DISTINCT FROM is what no index can find.)
	markPlaces = markHeld + `FROM unnest($1::text[], $4::tid[]) AS m(id, place) WHERE e.ctid = m.place AND e.id IS NOT DISTINCT FROM m.id` + markEnd
)

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
	ids, places := []string{}, []Place{}
	for _, m := range marks {
		if m.Epoch == epochs[m.Lane.Partition] {
			ids, places = append(ids, m.IDs...), append(places, m.Places...)
		}
	}
	held := make(map[int]bool, len(epochs))
	count := 0
	c := call{sql: mark, args: []any{ids, partitions, claimed}, row: func(r pgx.Rows) error {
		var p int
		if err := r.Scan(&count, &p); err != nil {
			return err
		}
		held[p] = true
		return nil
	}}
	byID := c
	if len(places) == len(ids) {
		c.sql, c.args = markPlaces, append(c.args, places)
	}
	err = s.run(ctx, "mark events", call{sql: markPatience}, c)
	if err == nil && c.sql == markPlaces && count < len(ids) && len(held) > 0 { // some have moved, or were marked before
		clear(held)
		err = s.run(ctx, "mark events", call{sql: markPatience}, byID)
	}
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
