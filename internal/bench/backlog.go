package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// backlog is what events are to be drained.
type backlog struct {
	events, keys, payload int // payload: the bytes of each as Postgres prints it
	partitions, streams   int
	processed             int  // rows that are done already, beside the backlog
	plain                 bool // in the pollers' table instead
	onePartition          bool // all keys are of one partition
}

func (b backlog) name() string {
	return fmt.Sprintf("%d_%d_%d_%d_%d_%d_%t_%t", b.events, b.keys, b.payload, b.partitions, b.streams, b.processed, b.plain, b.onePartition)
}

// rows are numbered; n tells the order within a key. 37 bytes of the payload are its frame.
const rows = `SELECT 'S' || n % $4 AS stream, 'bench.' || n % $4 || '.event' AS topic,
	jsonb_build_object('n', n, 'team_id', k.key, 'text', repeat('x', greatest($3 - 37 - length(n::text) - length(k.key), 0))) AS payload
	FROM generate_series(1, $1::bigint) n CROSS JOIN LATERAL (SELECT {key} AS key OFFSET 0) k`

const (
	anyKey = "'t_' || n / $4 % $2"
	// hotKey is one of those that hotKeys has found, all of one partition.
	hotKey  = "(SELECT h.key FROM hot_keys h WHERE h.number = n / $4 % $2)"
	hotKeys = `CREATE TEMP TABLE hot_keys AS SELECT row_number() OVER () - 1 AS number, f.key FROM (SELECT 't_' || i AS key FROM generate_series(0, 10000000) i
		WHERE outbox_partition_of('t_' || i) = 7 LIMIT %d) f; CREATE INDEX ON hot_keys (number)`
)

// rows is the query for events. Its parameters are their number, b.keys, b.payload and the number of streams.
func (b backlog) rows() string {
	if b.onePartition {
		return strings.ReplaceAll(rows, "{key}", hotKey)
	}
	return strings.ReplaceAll(rows, "{key}", anyKey)
}

// hole is the number before the backlog's first, which no row has.
func (b backlog) hole() int { return b.processed + 1 }

// backlog makes a template once, by ordinary inserts into an ordinary schema, and hides the events: see site.release.
func (l *lab) backlog(ctx context.Context, b backlog) (string, error) {
	return l.template(ctx, b.name(), b.partitions, func(ctx context.Context, db *pgx.Conn) error {
		l.say("making a backlog of %s events", amount(b.events))
		args := []any{b.events, b.keys, b.payload, max(b.streams, 1)}
		if b.plain {
			for _, sql := range plainTable {
				if _, err := db.Exec(ctx, sql); err != nil {
					return fmt.Errorf("make a plain table: %w", err)
				}
			}
			if _, err := db.Exec(ctx, "INSERT INTO plain_events SELECT r.n, r.topic, r.payload FROM (SELECT row_number() OVER () AS n, r.* FROM ("+b.rows()+") r) r", args...); err != nil {
				return fmt.Errorf("insert the backlog: %w", err)
			}
			_, err := db.Exec(ctx, "VACUUM ANALYZE plain_events")
			return err
		}
		if b.onePartition {
			if _, err := db.Exec(ctx, fmt.Sprintf(hotKeys, b.keys), pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("find keys of one partition: %w", err)
			}
		}
		if b.processed > 0 {
			if err := l.addProcessed(ctx, db, b); err != nil {
				return err
			}
		}
		for _, sql := range []string{"SELECT nextval('outbox_events_seq')", "INSERT INTO outbox_events (stream, topic, payload) " + b.rows(), "VACUUM ANALYZE"} {
			var with []any
			if strings.HasPrefix(sql, "INSERT") {
				with = args
			}
			if _, err := db.Exec(ctx, sql, with...); err != nil {
				return fmt.Errorf("insert the backlog: %w", err)
			}
		}
		return hide(ctx, db, b.hole())
	})
}
