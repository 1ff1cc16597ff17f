package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const workersWanted = `SELECT {schema}.outbox_workers_wanted($1::bigint, nullif($2::int, 0))`

// WorkersWanted is how many workers the waiting events are worth, if one is worth target of them; at most `most`, or as many as there are
// partitions if it is 0. What counts is said at the SQL function outbox_workers_wanted. It needs no right but to call that function.
func (s *Store) WorkersWanted(ctx context.Context, target int64, most int) (int, error) {
	var wanted int
	err := s.run(ctx, "ask how many workers are wanted", call{sql: workersWanted, args: []any{target, most}, row: func(r pgx.Rows) error {
		return r.Scan(&wanted)
	}})
	return wanted, err
}
