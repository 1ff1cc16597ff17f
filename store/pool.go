package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// claimPool makes $1 the pool that has the table, if none has it or the one that has it was not seen for $2, and keeps it fresh without
	// writing each time.
	claimPool = `INSERT INTO {schema}.outlane_pool AS p (pool) VALUES ($1) ON CONFLICT (singleton) DO UPDATE SET pool = excluded.pool, seen_at = now()
	WHERE p.seen_at NOT BETWEEN now() - $2::bigint * interval '1 microsecond' AND now() + interval '1 hour'
		OR p.pool = excluded.pool AND p.seen_at < now() - $2::bigint * interval '1 microsecond' / 4`

	readPoolName = `SELECT p.pool, extract(epoch FROM now() - p.seen_at)::float8 FROM {schema}.outlane_pool p`
)

// PoolError says that another pool has the table.
type PoolError struct {
	Pool   string        // which
	Silent time.Duration // since it was last seen, by the database's clock
}

func (e *PoolError) Error() string {
	return fmt.Sprintf("the outbox belongs to the pool %q, which was seen %s ago", e.Pool, e.Silent.Round(time.Second))
}

// ClaimPool says that a pool has the table, for the time given from now on. Every worker calls it, at the start and then several times in that
// time. It returns a *PoolError while another pool has the table.
func (s *Store) ClaimPool(ctx context.Context, pool string, lapse time.Duration) error {
	var owner string
	var silent float64
	err := s.run(ctx, "claim the outbox for a pool", call{sql: claimPool, args: []any{pool, lapse.Microseconds()}},
		call{sql: readPoolName, row: func(r pgx.Rows) error { return r.Scan(&owner, &silent) }})
	if err == nil && owner != pool {
		err = &PoolError{Pool: owner, Silent: duration(silent)}
	}
	return err
}
