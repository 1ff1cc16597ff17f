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
}

func (b backlog) name() string {
	return fmt.Sprintf("%d_%d_%d_%d_%d_%d_%t", b.events, b.keys, b.payload, b.partitions, b.streams, b.processed, b.plain)
}

// rows are numbered; n tells the order within a key. 43 bytes of the payload are the frame and the numbers' usual lengths.
const rows = `SELECT 'S' || n % $4 AS stream, 'bench.' || n % $4 || '.event' AS topic,
	jsonb_build_object('n', n, 'team_id', 't_' || n / $4 % $2, 'text', repeat('x', greatest($3 - 38 - length(n::text) - length((n / $4 % $2)::text), 0))) AS payload
	FROM generate_series(1, $1::bigint) n`

// hole is the number before the backlog's first, which no row has.
func (b backlog) hole() int { return b.processed + 1 }

// backlog makes a template once, by ordinary inserts into an ordinary schema, and hides the events: see site.release.
func (l *lab) backlog(ctx context.Context, b backlog) (string, error) {
	return l.template(ctx, b.name(), b.partitions, func(ctx context.Context, db *pgx.Conn) error {
		l.say("making a backlog of %s events", figure(float64(b.events)))
		args := []any{b.events, b.keys, b.payload, max(b.streams, 1)}
		if b.plain {
			for _, sql := range plainTable {
				if _, err := db.Exec(ctx, sql); err != nil {
					return fmt.Errorf("make a plain table: %w", err)
				}
			}
			if _, err := db.Exec(ctx, "INSERT INTO plain_events SELECT r.n, r.topic, r.payload FROM (SELECT row_number() OVER () AS n, r.* FROM ("+rows+") r) r", args...); err != nil {
				return fmt.Errorf("insert the backlog: %w", err)
			}
			_, err := db.Exec(ctx, "VACUUM ANALYZE plain_events")
			return err
		}
		if b.processed > 0 {
			if err := l.addProcessed(ctx, db, b); err != nil {
				return err
			}
		}
		for _, sql := range []string{"SELECT nextval('outbox_events_seq')", "INSERT INTO outbox_events (stream, topic, payload) " + rows, "VACUUM ANALYZE"} {
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
