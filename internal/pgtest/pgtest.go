// Package pgtest gives tests a real PostgreSQL.
//
// Migrated is for nearly every test: a fresh database with Outlane's schema, on one server that all tests of a process share. Database gives an
// empty one. StartServer is for tests that
// stop, crash or promote a server. Everything is removed when the test ends, and when the process dies.
//
// The server's version is the environment variable PG, else the newest that is installed. fsync is off, synchronous_commit is on. Roles
// belong to the server, not to a database: take them from Role, which makes unique ones.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/postgres"
)

// Ceiling bounds every wait of this package. It is generous: a loaded machine is no failure.
const Ceiling = 2 * time.Minute

func options() postgres.Options {
	return postgres.Options{Settings: map[string]string{
		"fsync":                     "off",
		"full_page_writes":          "off",
		"wal_level":                 "replica",
		"max_prepared_transactions": "10",
		"max_connections":           "300",
		"shared_buffers":            "64MB",
	}}
}

var shared = sync.OnceValues(func() (*postgres.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	return postgres.Start(ctx, options())
})

var counter atomic.Int64

// Shared returns the server that the tests of this process share. Do not stop it.
func Shared(t testing.TB) *postgres.Server {
	t.Helper()
	server, err := shared()
	require.NoError(t, err)
	return server
}

// Database returns the URL of a new, empty database on the shared server, as its superuser. It is dropped when the test ends,
// and sessions that are still open then are ended.
func Database(t testing.TB) string {
	t.Helper()
	return create(t, "template1")
}

func create(t testing.TB, template string) string {
	t.Helper()
	server := Shared(t)
	name := fmt.Sprintf("test_%d", counter.Add(1))
	Exec(t, server.URL("postgres"), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
	t.Cleanup(func() {
		Exec(t, server.URL("postgres"), fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name))
	})
	return server.URL(name)
}

// Exec runs statements, each on its own, in one short session.
func Exec(t testing.TB, databaseURL string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	require.NoError(t, exec(ctx, databaseURL, statements...))
}

func exec(ctx context.Context, databaseURL string, statements ...string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Connect opens a session that is closed when the test ends.
func Connect(t testing.TB, databaseURL string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
		defer cancel()
		_ = conn.Close(ctx) // the test may have broken it on purpose
	})
	return conn
}

// Role makes a role that can log in and has no rights at all, and returns its name and the URL with which it enters the database. The
// role and what was granted to it are dropped when the test ends.
func Role(t testing.TB, databaseURL string) (name, roleURL string) {
	t.Helper()
	name = fmt.Sprintf("role_%d", counter.Add(1))
	Exec(t, databaseURL, "CREATE ROLE "+name+" LOGIN")
	t.Cleanup(func() {
		Exec(t, databaseURL, "DROP OWNED BY "+name, "DROP ROLE "+name)
	})
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	u.User = url.User(name)
	return name, u.String()
}
