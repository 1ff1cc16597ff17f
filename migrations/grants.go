package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// producerGrants let a role insert events, and nothing else. Functions are named because EXECUTE may have been revoked from PUBLIC.
var producerGrants = []string{
	"INSERT ON {schema}.outbox_events",
	"EXECUTE ON FUNCTION {schema}.outlane_uuid7(), {schema}.outbox_partition_of(text), {schema}.outlane_partition_of(text, int)",
}

// workerGrants let a role do what package store does: it can mark events, not insert or delete them.
var workerGrants = []string{
	"SELECT, UPDATE (processed, processed_at, error, attempts) ON {schema}.outbox_events",
	"SELECT, UPDATE ON SEQUENCE {schema}.outbox_events_seq, {schema}.outlane_idle",
	"SELECT, UPDATE (sequence_file, generation, settling) ON {schema}.outlane_config",
	"SELECT ON {schema}." + Table,
	"SELECT, UPDATE ON {schema}.outlane_partitions, {schema}.outlane_horizon",
	"SELECT, INSERT, UPDATE ON {schema}.outlane_lanes, {schema}.outbox_dead_letters, {schema}.outbox_parked_events, {schema}.outlane_pool",
	"SELECT, INSERT, UPDATE, DELETE ON {schema}.outlane_routes, {schema}.outlane_lane_states, {schema}.outlane_members, {schema}.outlane_leases",
	"EXECUTE ON FUNCTION {schema}.outbox_partition_of(text), {schema}.outlane_partition_of(text, int), {schema}.outbox_workers_wanted(bigint, int)",
}

// scalerGrants let a role ask how many workers are wanted, and nothing else.
var scalerGrants = []string{"EXECUTE ON FUNCTION {schema}.outbox_workers_wanted(bigint, int)"}

// Roles are the names of existing roles. An empty one is left out.
type Roles struct {
	Producer string // inserts events
	Worker   string // delivers events, and operates
	Scaler   string // asks how many workers are wanted
}

// Grants gives roles the least rights that they need, all or none of them. It takes nothing away.
func Grants(ctx context.Context, url, schema string, roles Roles) error {
	config, err := parse(url)
	if err != nil {
		return err
	}
	refused := "" // who has no right to give is only warned
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "01007" {
			refused = n.Message
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, r := range []struct {
			name   string
			grants []string
		}{{roles.Producer, producerGrants}, {roles.Worker, workerGrants}, {roles.Scaler, scalerGrants}} {
			if r.name == "" {
				continue
			}
			for _, grant := range append([]string{"USAGE ON SCHEMA {schema}"}, r.grants...) {
				statement := "GRANT " + strings.ReplaceAll(grant, "{schema}", quote(schema)) + " TO " + quote(r.name)
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
				if refused != "" {
					return fmt.Errorf("%s; %w", refused, errNotOwner)
				}
			}
		}
		return nil
	})
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && (e.Code == "42P01" || e.Code == "3F000"): // no such table, no such schema
		return fmt.Errorf("grant rights: schema %q has no outbox: run outlane migrate up first", schema)
	case err != nil:
		return fmt.Errorf("grant rights: %w", explain(err))
	}
	return nil
}
