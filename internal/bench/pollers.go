package bench

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/outlane/outlane/internal/sandbox"
)

const batch = 250

// runPollers has the usual pollers drain a plain table: each takes rows that nobody has locked, publishes them one by one, and marks them.
func runPollers(ctx context.Context, box *sandbox.Sandbox, opts Options, n int) (Result, error) {
	name := fmt.Sprintf("plain_%d", n)
	for _, sql := range []string{
		"CREATE TABLE " + name + " (id bigint PRIMARY KEY, topic text NOT NULL, payload jsonb NOT NULL, processed boolean NOT NULL DEFAULT false)",
		"CREATE INDEX ON " + name + " (id) WHERE NOT processed",
		fmt.Sprintf(`INSERT INTO %s (id, topic, payload) SELECT n, '%s.event', jsonb_build_object('team_id', 'team_' || n %% %d, 'n', n, 'text', repeat('x', %d))
			FROM generate_series(1, %d) n`, name, name, opts.Keys, opts.Payload, opts.Events),
		"VACUUM ANALYZE " + name,
	} {
		if _, err := box.DB.Exec(ctx, sql); err != nil {
			return Result{}, fmt.Errorf("make the backlog: %w", err)
		}
	}
	if _, err := box.JetStream.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		return Result{}, fmt.Errorf("create stream %s: %w", name, err)
	}
	group, inner := errgroup.WithContext(ctx)
	for range n {
		group.Go(func() error {
			for {
				if more, err := pollOnce(inner, box, name); err != nil || !more {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	r, err := measure(ctx, box, name, opts)
	r.Name = "SKIP LOCKED, " + number(n, "poller")
	return r, err
}

// number writes a count with its noun.
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

type row struct {
	ID      int64
	Topic   string
	Payload []byte
}

func pollOnce(ctx context.Context, box *sandbox.Sandbox, table string) (more bool, err error) {
	err = pgx.BeginFunc(ctx, box.DB, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, "SELECT id, topic, payload FROM "+table+" WHERE NOT processed ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED", batch)
		if err != nil {
			return fmt.Errorf("take rows: %w", err)
		}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
		if err != nil {
			return fmt.Errorf("take rows: %w", err)
		}
		more = len(rows) > 0
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
			if _, err := box.JetStream.Publish(ctx, r.Topic, r.Payload, jetstream.WithMsgID(fmt.Sprint(table, r.ID))); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE "+table+" SET processed = true WHERE id = ANY ($1)", ids); err != nil {
			return fmt.Errorf("mark rows: %w", err)
		}
		return nil
	})
	return more, err
}

// parse reads the key and the number of an event.
func parse(payload []byte) (team string, n int, err error) {
	var p struct {
		Team string `json:"team_id"`
		N    int    `json:"n"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return "", 0, fmt.Errorf("read a payload: %w", err)
	}
	return p.Team, p.N, nil
}
