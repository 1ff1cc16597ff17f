package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outlane/outlane/migrations"
)

const (
	schemaVersion = `SELECT coalesce(max(m.version_id), 0) FROM {schema}.` + migrations.Table + ` m WHERE m.is_applied`

	readMeta = `SELECT c.partitions, c.partition_key_field, s.seqcache, current_setting('server_version_num')::int
		FROM {schema}.outlane_config c, pg_catalog.pg_sequence s WHERE s.seqrelid = '{literal}.outbox_events_seq'::regclass`
)

// Meta reads how the database is set up. If its schema is not the one this program was built for, the error is a *SchemaError.
func (s *Store) Meta(ctx context.Context) (Meta, error) {
	m := Meta{WantVersion: migrations.Newest()}
	err := s.run(ctx, "read the schema's version", call{sql: schemaVersion, row: func(r pgx.Rows) error { return r.Scan(&m.SchemaVersion) }})
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && (e.Code == "42P01" || e.Code == "3F000"): // undefined_table, invalid_schema_name
		return m, s.notSetUp()
	case err != nil:
		return Meta{}, err
	case m.SchemaVersion != m.WantVersion:
		return m, &SchemaError{Schema: s.name, Have: m.SchemaVersion, Want: m.WantVersion}
	}
	found := false
	err = s.run(ctx, "read the settings", call{sql: readMeta, row: func(r pgx.Rows) error {
		found = true
		return r.Scan(&m.Partitions, &m.KeyField, &m.SequenceCache, &m.ServerVersion)
	}})
	if err != nil {
		return Meta{}, err
	}
	if !found {
		return m, s.notSetUp()
	}
	m.Sessions = !s.pooled.Load()
	return m, nil
}

func (s *Store) notSetUp() error { return &SchemaError{Schema: s.name, Want: migrations.Newest()} }
