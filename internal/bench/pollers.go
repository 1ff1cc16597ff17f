package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Pollers drain a plain table as most teams write it: take the oldest rows that are not processed, publish them one after another, each when the
// one before is acknowledged, and mark each, all in one transaction. With SKIP LOCKED there may be several, and then there is no order.
type pollersOrder struct {
	Database, NATS string
	Pollers        int
	SkipLocked     bool
	MarkAtOnce     bool // all rows of the transaction are marked by one statement
}

// pollBatch is how many rows a poller takes at once, as the workers.
const pollBatch = 250

type pollers struct {
	order pollersOrder
	db    *pgxpool.Pool
	conn  *nats.Conn
	js    jetstream.JetStream
}

func (p *pollers) prepare(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(p.order.Database)
	if err != nil {
		return err
	}
	cfg.MaxConns, cfg.MinConns = int32(p.order.Pollers), int32(p.order.Pollers)
	if p.db, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	p.conn, p.js, err = dial(p.order.NATS)
	return err
}

func (p *pollers) end() {
	if p.conn != nil {
		p.conn.Close()
	}
	if p.db != nil {
		p.db.Close()
	}
}

func (p *pollers) work(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range p.order.Pollers {
		group.Go(func() error {
			for {
				if more, err := p.once(ctx); err != nil || !more {
					return err
				}
			}
		})
	}
	return group.Wait()
}

type plainRow struct {
	ID      int64
	Topic   string
	Payload []byte
}

func (p *pollers) once(ctx context.Context) (more bool, err error) {
	take := "SELECT id, topic, payload FROM plain_events WHERE NOT processed ORDER BY id LIMIT $1 FOR UPDATE"
	if p.order.SkipLocked {
		take += " SKIP LOCKED"
	}
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, take, pollBatch)
		if err != nil {
			return fmt.Errorf("take rows: %w", err)
		}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[plainRow])
		if err != nil {
			return fmt.Errorf("take rows: %w", err)
		}
		more = len(rows) > 0
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
			if _, err := p.js.Publish(ctx, r.Topic, r.Payload, jetstream.WithMsgID(fmt.Sprint(r.ID))); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
			if p.order.MarkAtOnce {
				continue
			}
			if _, err := tx.Exec(ctx, "UPDATE plain_events SET processed = true WHERE id = $1", r.ID); err != nil {
				return fmt.Errorf("mark a row: %w", err)
			}
		}
		if !p.order.MarkAtOnce {
			return nil
		}
		if _, err := tx.Exec(ctx, "UPDATE plain_events SET processed = true WHERE id = ANY ($1)", ids); err != nil {
			return fmt.Errorf("mark rows: %w", err)
		}
		return nil
	})
	return more, err
}

// plainTable makes the pollers' table.
var plainTable = []string{
	"CREATE TABLE plain_events (id bigint PRIMARY KEY, topic text NOT NULL, payload jsonb NOT NULL, processed boolean NOT NULL DEFAULT false)",
	"CREATE INDEX ON plain_events (id) WHERE NOT processed",
}
