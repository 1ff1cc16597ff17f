// Package migrations installs Outlane's schema, brings it up to date and removes it.
//
// The statements are numbered SQL files, embedded, and run by goose; what ran is kept in the table outlane_migrations of the same schema.
// Up may be called by any number of processes at once: they take turns by an advisory lock of the database, and those that find nothing
// left to do change nothing.
//
// Every function opens connections of its own and closes them. The address must lead straight to the server, or through a pooler that keeps
// sessions: the schema to install into is a setting of the session. If it does not, ErrNoSession is returned and nothing is done.
//
// Down removes the tables with everything in them. It asks nobody.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/outlane/outlane/internal/pgurl"
	"github.com/outlane/outlane/partition"
)

//go:embed *.sql
var files embed.FS

// Table is the table in which goose keeps what ran.
const Table = "outlane_migrations"

// DefaultKeyField is the field of the payload that has the partition key, unless Options name another.
const DefaultKeyField = "team_id"

// ErrNoSession says that a pooler in between does not keep session settings.
var ErrNoSession = errors.New("a pooler in between keeps no sessions: give the server's own address")

var errNotOwner = errors.New("migrations are for the role that owns the tables, or that may create them")

// NewerError says that the database was migrated by a newer program. Nothing was changed.
type NewerError struct{ Have, Newest int64 }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the schema is at version %d, this program knows only %d: use the newer one", e.Have, e.Newest)
}

// ConflictError says that the database was set up otherwise than was asked for. Nothing was changed.
type ConflictError struct {
	Setting    string // "partitions" or "partition key field"
	Have, Want string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: the database was set up with %s, not %s", e.Setting, e.Have, e.Want)
}

// Options are chosen at the first Up and stored in the database.
type Options struct {
	Partitions int    // 1 to partition.MaxPartitions; 0: what the database has, else partition.DefaultPartitions
	KeyField   string // "": what the database has, else DefaultKeyField
}

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero if it was not applied
}

// Newest is the version that Up leads to.
func Newest() int64 {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	var newest int64
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if v, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, v)
		}
	}
	return newest
}

// Up creates the schema if need be, brings it to the newest version, and at the first run stores the options and makes the rows of the
// partitions. It returns what it applied. Errors: *ConflictError, *NewerError, ErrNoSession.
func Up(ctx context.Context, url, schema string, opts Options) ([]Migration, error) {
	if opts.Partitions < 0 || opts.Partitions > partition.MaxPartitions {
		return nil, fmt.Errorf("read the number of partitions: %d is not from 1 to %d", opts.Partitions, partition.MaxPartitions)
	}
	var applied []Migration
	err := locked(ctx, url, schema, func(db *sql.DB, p *goose.Provider) error {
		if err := create(ctx, db, schema); err != nil {
			return fmt.Errorf("create the schema: %w", explain(err))
		}
		if err := refuse(ctx, db, opts); err != nil {
			return err
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Name: name(r.Source), AppliedAt: time.Now()})
		}
		if err != nil {
			return fmt.Errorf("migrate: %w", explain(err))
		}
		return explain(setUp(ctx, db, opts))
	})
	return applied, err
}

// create makes the schema if there is none. (CREATE SCHEMA IF NOT EXISTS asks for the right to create one even if there is.)
func create(ctx context.Context, db *sql.DB, schema string) error {
	exists := false
	if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE SCHEMA "+quote(schema))
	return err
}

// refuse looks for reasons not to migrate.
func refuse(ctx context.Context, db *sql.DB, opts Options) error {
	have, err := current(ctx, db)
	if err != nil || have == 0 {
		return err
	}
	if newest := Newest(); have > newest {
		return &NewerError{Have: have, Newest: newest}
	}
	var partitions int
	var field string
	err = db.QueryRowContext(ctx, "SELECT partitions, partition_key_field FROM outlane_config").Scan(&partitions, &field)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read what the database was set up with: %w", err)
	case opts.Partitions != 0 && opts.Partitions != partitions:
		return &ConflictError{Setting: "partitions", Have: strconv.Itoa(partitions), Want: strconv.Itoa(opts.Partitions)}
	case opts.KeyField != "" && opts.KeyField != field:
		return &ConflictError{Setting: "partition key field", Have: strconv.Quote(field), Want: strconv.Quote(opts.KeyField)}
	}
	return nil
}

// setUp writes the rows that every installation has, where they are not there yet.
func setUp(ctx context.Context, db *sql.DB, opts Options) error {
	if opts.Partitions == 0 {
		opts.Partitions = partition.DefaultPartitions
	}
	if opts.KeyField == "" {
		opts.KeyField = DefaultKeyField
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("store the settings: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(ctx, `INSERT INTO outlane_config (partitions, partition_key_field, sequence_file)
		VALUES ($1, $2, pg_relation_filenode('outbox_events_seq')) ON CONFLICT DO NOTHING`, opts.Partitions, opts.KeyField)
	if err != nil {
		return fmt.Errorf("store the settings: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		if _, err := tx.ExecContext(ctx, "SELECT outlane_make_trigger()"); err != nil {
			return fmt.Errorf("write the insert trigger: %w", err)
		}
	}
	for _, table := range []string{"outlane_partitions", "outlane_leases"} {
		if _, err := tx.ExecContext(ctx, `INSERT INTO `+table+` (partition)
			SELECT generate_series(0, partitions - 1) FROM outlane_config ON CONFLICT DO NOTHING`); err != nil {
			return fmt.Errorf("make the partitions: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("store the settings: %w", err)
	}
	return nil
}

// Down undoes every migration, with all events, and returns what it undid. The schema itself stays. Error: *NewerError.
func Down(ctx context.Context, url, schema string) ([]Migration, error) {
	var undone []Migration
	err := locked(ctx, url, schema, func(db *sql.DB, p *goose.Provider) error {
		have, err := current(ctx, db)
		if err != nil || have == 0 {
			return err
		}
		if newest := Newest(); have > newest {
			return &NewerError{Have: have, Newest: newest}
		}
		results, err := p.DownTo(ctx, 0)
		for _, r := range results {
			undone = append(undone, Migration{Version: r.Source.Version, Name: name(r.Source)})
		}
		if err != nil {
			return fmt.Errorf("remove the tables: %w", explain(err))
		}
		return nil
	})
	return undone, err
}

// Status lists every migration that this program knows, and whether it was applied. It changes nothing.
func Status(ctx context.Context, url, schema string) ([]Migration, error) {
	db, p, err := open(url, schema)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	have, err := current(ctx, db)
	if err != nil {
		return nil, err
	}
	var list []Migration
	for _, source := range p.ListSources() {
		m := Migration{Version: source.Version, Name: name(source)}
		if have > 0 {
			err := db.QueryRowContext(ctx, "SELECT tstamp::timestamptz FROM "+Table+" WHERE version_id = $1 AND is_applied ORDER BY id DESC LIMIT 1",
				source.Version).Scan(&m.AppliedAt)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, fmt.Errorf("read what was applied: %w", err)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// Version is the version that the database is at; 0 if nothing is installed. It changes nothing.
func Version(ctx context.Context, url, schema string) (int64, error) {
	db, _, err := open(url, schema)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	return current(ctx, db)
}

func current(ctx context.Context, db *sql.DB) (int64, error) {
	var version int64
	err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+Table+" WHERE is_applied").Scan(&version)
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code == "42P01" || e.Code == "3F000") {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", explain(err))
	}
	return version, nil
}

// explain recognizes a pooler that refuses our session settings, and a role that may not do what is asked.
func explain(err error) error {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == "08P01" && strings.Contains(e.Message, "startup parameter"):
		return fmt.Errorf("%w: %w", ErrNoSession, err)
	case e != nil && e.Code == "42501":
		return fmt.Errorf("%w; %w", err, errNotOwner)
	}
	return err
}

// locked runs f while no other process migrates in this database.
func locked(ctx context.Context, url, schema string, f func(*sql.DB, *goose.Provider) error) error {
	db, p, err := open(url, schema)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", explain(err))
	}
	defer func() { _ = conn.Close() }()
	// The lock ends with its session, which ends with db.
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(hashtextextended('outlane migrations ' || $1, 0))", schema); err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	return f(db, p)
}

func open(url, schema string) (*sql.DB, *goose.Provider, error) {
	config, err := parse(url)
	if err != nil {
		return nil, nil, err
	}
	path := quote(schema) + ", pg_temp"
	config.RuntimeParams["search_path"] = path
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "outlane migrate"
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		var got string
		if err := conn.QueryRow(ctx, "SELECT current_setting('search_path')").Scan(&got); err != nil {
			return err
		}
		if got != path {
			return ErrNoSession
		}
		return nil
	}))
	store, err := database.NewStore(database.DialectPostgres, Table)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, files, goose.WithStore(store), goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return db, p, nil
}

func parse(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", pgurl.Check(url, nil, err))
	}
	if err := pgurl.Check(url, &config.Config, nil); err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	return config, nil
}

func name(s *goose.Source) string { return strings.TrimSuffix(filepath.Base(s.Path), ".sql") }

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }
