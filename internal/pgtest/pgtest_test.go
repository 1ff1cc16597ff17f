package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestDatabasesAreEmptyAndApart(t *testing.T) {
	t.Parallel()
	one, two := pgtest.Database(t), pgtest.Database(t)
	require.NotEqual(t, one, two)
	pgtest.Exec(t, one, "CREATE TABLE a (n int)")
	require.Zero(t, tables(t, two))
	require.Equal(t, 1, tables(t, one))
}

func TestDatabaseIsDroppedWithItsSessions(t *testing.T) {
	t.Parallel()
	var conn *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		var err error
		conn, err = pgx.Connect(context.Background(), pgtest.Database(t))
		require.NoError(t, err)
	})
	_, err := conn.Exec(context.Background(), "SELECT 1")
	require.Error(t, err)
}

func TestRoleHasNoRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pgtest.Exec(t, url, "CREATE TABLE a (n int)")
	name, roleURL := pgtest.Role(t, url)
	conn := pgtest.Connect(t, roleURL)
	_, err := conn.Exec(context.Background(), "SELECT * FROM a")
	require.ErrorContains(t, err, "permission denied")
	pgtest.Exec(t, url, "GRANT SELECT ON a TO "+name)
	_, err = conn.Exec(context.Background(), "SELECT * FROM a")
	require.NoError(t, err)
}

func TestMigratedDatabasesAreApartAndReady(t *testing.T) {
	t.Parallel()
	const event = "INSERT INTO outbox_events (stream, topic, payload) VALUES ('S', 't', '{}')"
	one, two := pgtest.Migrated(t, 4), pgtest.Migrated(t, 4)
	pgtest.Exec(t, one, event)
	require.Equal(t, 1, count(t, one, "outbox_events"))
	require.Zero(t, count(t, two, "outbox_events"))
	require.Equal(t, 4, count(t, one, "outlane_partitions"))
	require.Equal(t, 7, count(t, pgtest.Migrated(t, 7), "outlane_partitions"))
}

func count(t *testing.T, url, table string) (n int) {
	t.Helper()
	require.NoError(t, pgtest.Connect(t, url).QueryRow(context.Background(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func tables(t *testing.T, url string) (n int) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	require.NoError(t, conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n))
	return n
}
