package migrations_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/partition"
)

var ctx = context.Background()

func up(t testing.TB, url, schema string, opts migrations.Options) []migrations.Migration {
	t.Helper()
	applied, err := migrations.Up(ctx, url, schema, opts)
	require.NoError(t, err)
	return applied
}

// inSchema is a superuser's session with the schema as its search path.
func inSchema(t testing.TB, url, schema string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, url)
	_, err := conn.Exec(ctx, "SET search_path = "+pgx.Identifier{schema}.Sanitize())
	require.NoError(t, err)
	return conn
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	rows, err := conn.Query(ctx, sql, args...)
	require.NoError(t, err, sql)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err, sql)
	return v
}

func TestUpInstallsOnceAndDownRemoves(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	version, err := migrations.Version(ctx, url, "public")
	require.NoError(t, err)
	require.Zero(t, version)
	list, err := migrations.Status(ctx, url, "public")
	require.NoError(t, err)
	require.Len(t, list, int(migrations.Newest()))
	require.True(t, list[0].AppliedAt.IsZero())
	require.Equal(t, "00001_outbox", list[0].Name)
	undone, err := migrations.Down(ctx, url, "public")
	require.NoError(t, err)
	require.Empty(t, undone)

	applied := up(t, url, "public", migrations.Options{Partitions: 7})
	require.Len(t, applied, int(migrations.Newest()))
	require.Empty(t, up(t, url, "public", migrations.Options{}))
	version, err = migrations.Version(ctx, url, "public")
	require.NoError(t, err)
	require.Equal(t, migrations.Newest(), version)
	list, err = migrations.Status(ctx, url, "public")
	require.NoError(t, err)
	require.False(t, list[0].AppliedAt.IsZero())
	conn := inSchema(t, url, "public")
	for _, table := range []string{"outlane_partitions", "outlane_leases"} {
		require.Equal(t, "0,1,2,3,4,5,6", one[string](t, conn, "SELECT string_agg(partition::text, ',' ORDER BY partition) FROM "+table))
	}

	undone, err = migrations.Down(ctx, url, "public")
	require.NoError(t, err)
	require.Len(t, undone, int(migrations.Newest()))
	left := one[[]string](t, conn, `SELECT coalesce(array_agg(relname::text), '{}') FROM pg_class c WHERE relnamespace = 'public'::regnamespace
		AND relname NOT LIKE 'outlane_migrations%'`)
	require.Empty(t, left)
	require.Zero(t, one[int](t, conn, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"))
	require.Len(t, up(t, url, "public", migrations.Options{}), int(migrations.Newest()), "and it can be installed again")
	require.Equal(t, partition.DefaultPartitions, one[int](t, conn, "SELECT partitions FROM outlane_config"))
	require.Equal(t, migrations.DefaultKeyField, one[string](t, conn, "SELECT partition_key_field FROM outlane_config"))
}

func TestUpRefusesWhatWouldChangeTheKeysPlaces(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	up(t, url, "s", migrations.Options{Partitions: 16, KeyField: "org"})
	for _, same := range []migrations.Options{{}, {Partitions: 16}, {KeyField: "org"}} {
		up(t, url, "s", same)
	}
	var conflict *migrations.ConflictError
	_, err := migrations.Up(ctx, url, "s", migrations.Options{Partitions: 32})
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, "16")
	require.ErrorContains(t, err, "32")
	_, err = migrations.Up(ctx, url, "s", migrations.Options{KeyField: "team"})
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, `"org"`)
	require.ErrorContains(t, err, `"team"`)
	for _, n := range []int{-1, 4097} {
		_, err = migrations.Up(ctx, url, "other", migrations.Options{Partitions: n})
		require.Error(t, err)
	}
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	pgtest.Exec(t, url, "INSERT INTO outlane_migrations (version_id, is_applied) VALUES (99, true)")
	var newer *migrations.NewerError
	_, err := migrations.Up(ctx, url, "public", migrations.Options{})
	require.ErrorAs(t, err, &newer)
	require.EqualValues(t, 99, newer.Have)
	_, err = migrations.Down(ctx, url, "public")
	require.ErrorAs(t, err, &newer)
	version, err := migrations.Version(ctx, url, "public")
	require.NoError(t, err)
	require.EqualValues(t, 99, version)
}

func TestFiveProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var all sync.WaitGroup
	counts := make([]int, 5)
	for i := range counts {
		all.Go(func() {
			applied, err := migrations.Up(ctx, url, "new schema", migrations.Options{Partitions: 8})
			if err != nil {
				t.Error(err)
			}
			counts[i] = len(applied)
		})
	}
	all.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	require.EqualValues(t, migrations.Newest(), total)
	require.Equal(t, 8, one[int](t, inSchema(t, url, "new schema"), "SELECT count(*) FROM outlane_partitions"))
}

// The settings of roles and sessions, and odd names, lead nothing astray.
func TestSchemasAreKeptApart(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pgtest.Exec(t, url, `CREATE SCHEMA "Other, one"`,
		fmt.Sprintf(`ALTER DATABASE %s SET search_path = '"Other, one", public'`, pgtest.Connect(t, url).Config().Database))
	schemas := []string{"Ünï\"code schema", "it's", "public", "a, b", `"`, `back\slash`, strings.Repeat("é", 31)}
	for i, schema := range schemas {
		up(t, url, schema, migrations.Options{Partitions: i + 1})
	}
	for i, schema := range schemas {
		conn := inSchema(t, url, schema)
		require.Equal(t, i+1, one[int](t, conn, "SELECT partitions FROM outlane_config"))
		other := pgtest.Connect(t, url) // with the database's search path
		_, err := other.Exec(ctx, "INSERT INTO "+pgx.Identifier{schema, "outbox_events"}.Sanitize()+
			" (stream, topic, payload) VALUES ('S', 't', '{\"team_id\": \"t_1\"}')")
		require.NoError(t, err)
		require.Equal(t, partition.Of("t_1", i+1), one[int](t, conn, "SELECT partition FROM outbox_events"))
		require.EqualValues(t, 1, one[int64](t, conn, "SELECT seq FROM outbox_events"))
		require.Equal(t, partition.Of("x", i+1), one[int](t, conn, "SELECT outbox_partition_of('x')"))
		_, err = migrations.Down(ctx, url, schema)
		require.NoError(t, err)
		left := one[int](t, conn, "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'", pgx.Identifier{schema}.Sanitize())
		require.Equal(t, 1, left, "the table of versions stays")
	}
	require.Zero(t, one[int](t, pgtest.Connect(t, url), `SELECT count(*) FROM pg_class WHERE relnamespace = '"Other, one"'::regnamespace`))
}

func TestSchemaMayBeMadeBySomebodyElse(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	name, address := pgtest.Role(t, url)
	_, err := migrations.Up(ctx, address, "made", migrations.Options{})
	require.ErrorContains(t, err, "permission denied")
	pgtest.Exec(t, url, "CREATE SCHEMA made", "GRANT USAGE, CREATE ON SCHEMA made TO "+name)
	up(t, address, "made", migrations.Options{Partitions: 3})
	conn := inSchema(t, address, "made")
	require.Equal(t, partition.Of("k", 3), one[int](t, conn, "INSERT INTO outbox_events (topic, partition_key) VALUES ('t', 'k') RETURNING partition"))
	_, err = migrations.Down(ctx, address, "made")
	require.NoError(t, err)
}

func TestPoolerIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	bouncer := pgtest.StartPgbouncer(t, url)
	_, err := migrations.Up(ctx, bouncer, "public", migrations.Options{})
	require.ErrorIs(t, err, migrations.ErrNoSession)
	_, err = migrations.Version(ctx, bouncer, "public")
	require.ErrorIs(t, err, migrations.ErrNoSession)
	require.Zero(t, one[int](t, pgtest.Connect(t, url), "SELECT count(*) FROM pg_class WHERE relname LIKE 'out%'"))
}

func TestAddressesAreNotTold(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:geheim@127.0.0.1:1/db", "postgres://u:geheim@h:port/db"} {
		_, err := migrations.Version(ctx, url, "public")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim")
		err = migrations.Grants(ctx, url, "public", migrations.Roles{Producer: "a", Worker: "b"})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim")
	}
}

func TestProducerMayInsertAndNothingElse(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	const schema = "Odd \"schema"
	up(t, url, schema, migrations.Options{})
	quoted := pgx.Identifier{schema}.Sanitize()
	pgtest.Exec(t, url, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA "+quoted+" FROM PUBLIC")
	name, address := pgtest.Role(t, url)
	conn := inSchema(t, address, schema)
	seed := `INSERT INTO outbox_events (id, stream, topic, payload)
		VALUES (gen_random_uuid()::text, 'STREAM_PAYOUT', 'payout.generated', '{"payout_id":"p_001","team_id":"t_555"}')`
	_, err := conn.Exec(ctx, seed)
	require.Error(t, err)
	require.NoError(t, migrations.Grants(ctx, url, schema, migrations.Roles{Producer: name}))
	require.NoError(t, migrations.Grants(ctx, url, schema, migrations.Roles{Producer: name}), "again")
	for _, allowed := range []string{
		seed, "INSERT INTO outbox_events (stream, topic) VALUES ('S', 't')", "INSERT INTO outbox_events (topic, processed) VALUES ('t', true)",
		"SELECT outbox_partition_of('t_555')",
	} {
		_, err = conn.Exec(ctx, allowed)
		require.NoError(t, err, allowed)
	}
	for _, refused := range []string{
		"SELECT id FROM outbox_events", "UPDATE outbox_events SET processed = true", "DELETE FROM outbox_events", "TRUNCATE outbox_events",
		"SELECT nextval('outbox_events_seq')", "SELECT partitions FROM outlane_config", "SELECT last_value FROM outlane_idle", "SELECT * FROM outlane_routes",
		"INSERT INTO outlane_routes VALUES (1, 'a', 'a', 'a')", "SELECT * FROM outbox_dead_letters", "CREATE TABLE own (n int)",
	} {
		_, err = conn.Exec(ctx, refused)
		require.ErrorContains(t, err, "permission denied", refused)
	}
	admin := inSchema(t, url, schema)
	require.Equal(t, 3, one[int](t, admin, "SELECT count(*) FROM outbox_events WHERE NOT processed AND attempts = 0 AND processed_at IS NULL"))
	require.Error(t, migrations.Grants(ctx, url, schema, migrations.Roles{Producer: name, Worker: "no such role"}))
}

func TestErrorsNameTheMend(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	name, address := pgtest.Role(t, url)
	require.ErrorContains(t, migrations.Grants(ctx, url, "public", migrations.Roles{Producer: name}), "run outlane migrate up first")
	require.ErrorContains(t, migrations.Grants(ctx, url, "nowhere", migrations.Roles{Producer: name}), "run outlane migrate up first")
	_, err := migrations.Up(ctx, address, "public", migrations.Options{})
	require.ErrorContains(t, err, "the role that owns the tables, or that may create them")
	up(t, url, "public", migrations.Options{})
	require.NoError(t, migrations.Grants(ctx, url, "public", migrations.Roles{Worker: name}))
	for _, do := range []func() error{
		func() error { _, err := migrations.Up(ctx, address, "public", migrations.Options{}); return err },
		func() error { _, err := migrations.Down(ctx, address, "public"); return err },
		func() error { return migrations.Grants(ctx, address, "public", migrations.Roles{Producer: name}) },
	} {
		require.ErrorContains(t, do(), "the role that owns the tables, or that may create them")
	}
}

// The trigger function runs with its owner's rights: what a producer puts into its own session must not be what it reads.
func TestProducerCannotPutItsTablesBeforeOurs(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	name, address := pgtest.Role(t, url)
	require.NoError(t, migrations.Grants(ctx, url, "public", migrations.Roles{Producer: name}))
	conn := pgtest.Connect(t, address)
	for _, statement := range []string{
		"CREATE TEMP TABLE outlane_config (partitions int, partition_key_field text)", "INSERT INTO outlane_config VALUES (1, 'other')",
		"CREATE TEMP SEQUENCE outbox_events_seq START 1000", "CREATE TEMP SEQUENCE outlane_idle MAXVALUE 2",
		`INSERT INTO public.outbox_events (stream, topic, payload) VALUES ('S', 't', '{"team_id": "t_1", "other": "t_2"}')`,
	} {
		_, err := conn.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	admin := inSchema(t, url, "public")
	require.Equal(t, "t_1", one[string](t, admin, "SELECT partition_key FROM outbox_events"))
	require.Equal(t, partition.Of("t_1", 4), one[int](t, admin, "SELECT partition FROM outbox_events"))
	require.EqualValues(t, 1, one[int64](t, admin, "SELECT seq FROM outbox_events"))
}

// Nor what it puts before pg_catalog: every function and operator that the trigger could mean, under its name in a schema of the producer's.
func TestProducerCannotPutItsFunctionsBeforePostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	name, address := pgtest.Role(t, url)
	require.NoError(t, migrations.Grants(ctx, url, "public", migrations.Roles{Producer: name}))
	admin := inSchema(t, url, "public")
	_, err := admin.Exec(ctx, "CREATE SCHEMA own AUTHORIZATION "+name)
	require.NoError(t, err)
	conn := pgtest.Connect(t, address)
	_, err = conn.Exec(ctx, `DO $do$ DECLARE f record; BEGIN
		FOR f IN SELECT p.proname, pg_get_function_result(p.oid) AS result, pg_get_function_arguments(p.oid) AS args FROM pg_proc p
			WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0 AND pg_get_function_result(p.oid) !~ 'internal|TABLE'
			AND pg_get_function_arguments(p.oid) !~ 'internal|"any"|cstring|any|OUT'
			AND EXISTS (SELECT FROM pg_proc o WHERE o.proname ~ '^outlane_(before_insert|complete)$' AND o.prosrc ~ ('\m' || p.proname || '\M'))
		LOOP
			EXECUTE format($f$CREATE FUNCTION own.%I(%s) RETURNS %s LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''hijacked by %s''; END'$f$, f.proname, f.args, f.result, f.proname);
		END LOOP;
		FOR f IN SELECT DISTINCT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result FROM pg_operator o
			WHERE o.oprname IN ('=', '<>', '||', '%', '->>', '~') AND o.oprleft IN ('int'::regtype, 'bigint'::regtype, 'text'::regtype, 'jsonb'::regtype, 'bool'::regtype)
			AND o.oprright IN ('int'::regtype, 'bigint'::regtype, 'text'::regtype)
		LOOP
			EXECUTE format($f$CREATE FUNCTION own.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''hijacked by an operator''; END'$f$,
				'op' || f.oprname, f.l, f.r, f.result);
			EXECUTE format('CREATE OPERATOR own.%s (FUNCTION = own.%I, LEFTARG = %s, RIGHTARG = %s)', f.oprname, 'op' || f.oprname, f.l, f.r);
		END LOOP;
		END $do$`)
	require.NoError(t, err)
	require.Greater(t, one[int](t, admin, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'own'::regnamespace"), 10)
	_, err = conn.Exec(ctx, "SET search_path = own, pg_catalog, public")
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO public.outbox_events (id, stream, topic, payload) VALUES ('a', 'S', 't', '{"team_id": "t_1"}')`,
		`INSERT INTO public.outbox_events (id, topic, payload, attempts) VALUES ('b', 't', '{"team_id": "t_1"}', 3)`,
	} {
		_, err := conn.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	require.Equal(t, partition.Of("t_1", 4), one[int](t, admin, "SELECT min(partition) FROM outbox_events"))
}
