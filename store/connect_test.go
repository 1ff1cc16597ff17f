package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/partition"
)

func TestMetaSaysHowTheDatabaseIsSetUp(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	m, err := s.Meta(ctx)
	require.NoError(t, err)
	version := one[int](d, "SELECT current_setting('server_version_num')::int")
	require.Equal(t, Meta{SchemaVersion: migrations.Newest(), WantVersion: migrations.Newest(), Partitions: testPartitions, KeyField: "team_id",
		SequenceCache: 1, Sessions: true, ServerVersion: version}, m)
	d.exec("ALTER SEQUENCE outbox_events_seq CACHE 20")
	m, err = s.Meta(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 20, m.SequenceCache)
}

func TestMetaSaysWhatToRunOnAnotherSchema(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	meta := func(schema string) *SchemaError {
		_, err := d.open(func(c *Config) { c.Schema = schema }).Meta(ctx)
		var e *SchemaError
		require.ErrorAs(t, err, &e)
		require.False(t, IsUnavailable(err))
		return e
	}
	newest := migrations.Newest()
	e := meta("nowhere")
	require.Equal(t, &SchemaError{Schema: "nowhere", Want: newest}, e)
	require.ErrorContains(t, e, "outlane migrate up")
	d.exec("CREATE SCHEMA empty")
	require.Equal(t, &SchemaError{Schema: "empty", Want: newest}, meta("empty"))
	d.exec("INSERT INTO outlane_migrations (version_id, is_applied) VALUES (99, true)")
	e = meta("public")
	require.Equal(t, &SchemaError{Schema: "public", Have: 99, Want: newest}, e)
	require.ErrorContains(t, e, "newer")
	require.ErrorContains(t, &SchemaError{Have: 1, Want: 2}, "outlane migrate up")
	d.exec("DELETE FROM outlane_migrations WHERE version_id = 99")
	d.exec("DELETE FROM outlane_config")
	require.Zero(t, meta("public").Have)
	_, err := d.open().Poll(ctx)
	require.ErrorAs(t, err, &e)
}

func TestOpenChecksItsConfiguration(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"address": {URL: "postgres://u:geheim@h:notaport/db"},
		"pooler":  {URL: "postgres://localhost/db", Pooler: "session"},
		"schema":  {URL: "postgres://localhost/db", Schema: "a\x00b"},
	} {
		_, err := Open(cfg)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "geheim", name)
	}
}

func TestServerMayBeAwayAtFirst(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	s := openURL(t, "postgres://u:geheim@"+address+"/db?sslmode=disable")
	for what, call := range calls(s) {
		err := call(ctx)
		require.True(t, IsUnavailable(err), "%s: %v", what, err)
		require.NotContains(t, err.Error(), "geheim")
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Poll(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, IsUnavailable(err))
}

// calls are some of a store's methods.
func calls(s *Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"poll": func(ctx context.Context) error { _, err := s.Poll(ctx); return err },
		"meta": func(ctx context.Context) error { _, err := s.Meta(ctx); return err },
		"mark": func(ctx context.Context) error { _, err := s.Mark(ctx, nil); return err },
		"fetch": func(ctx context.Context) error {
			_, _, err := s.Fetch(ctx, Lane{"A", 1}, 0, 10, nil, 10, 10)
			return err
		},
		"claim": func(ctx context.Context) error { _, err := s.Claim(ctx, "x", []int{1}); return err },
		"retry": func(ctx context.Context) error {
			_, err := s.RetryDeadLetter(ctx, "x")
			return ignore(err, ErrNoDeadLetter)
		},
		"routes": func(ctx context.Context) error { return s.ReplaceRoutes(ctx, nil) },
	}
}

func ignore(err, is error) error {
	if errors.Is(err, is) {
		return nil
	}
	return err
}

func TestUnavailableIsNotWrong(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, ErrReadOnly, &net.OpError{Op: "read", Err: errors.New("reset")},
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "08006"}, &pgconn.PgError{Code: "53300"}, &pgconn.PgError{Code: "25006"},
		&pgconn.PgError{Code: "58030"}, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "57014"},
	} {
		require.True(t, IsUnavailable(fmt.Errorf("do something: %w", err)), "%v", err)
	}
	for _, err := range []error{
		nil, context.Canceled, ErrFenced, ErrNoSession, ErrNoDeadLetter, ErrResolved, &SchemaError{}, errors.New("other"),
		&pgconn.PgError{Code: "42501"}, &pgconn.PgError{Code: "42P01"}, &pgconn.PgError{Code: "23505"}, &pgconn.PgError{Code: ""},
	} {
		require.False(t, IsUnavailable(err), "%v", err)
	}
}

func TestSilentServerMeetsTheDeadline(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	url := server.Database("silent")
	migrateUp(t, url)
	s := openURL(t, url, func(c *Config) { c.StatementTimeout = 300 * time.Millisecond })
	poll(t, s)
	server.Freeze()
	for what, call := range calls(s) {
		if what == "poll" || what == "retry" {
			continue // their deadlines are longer
		}
		err := call(ctx)
		require.True(t, IsUnavailable(err), "%s: %v", what, err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := s.Poll(short)
	require.True(t, IsUnavailable(err), "%v", err)
	server.Thaw()
	require.Eventually(t, func() bool { _, err := s.Poll(ctx); return err == nil }, ceiling, 10*time.Millisecond)
}

func TestStatementsEndOnTheServerToo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open(func(c *Config) { c.StatementTimeout = 200 * time.Millisecond })
	err := s.run(ctx, "sleep", call{sql: "SELECT pg_sleep(600)"})
	require.True(t, IsUnavailable(err), "%v", err)
	require.Eventually(t, func() bool {
		return one[int](d, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(600)' AND state = 'active'") == 0
	}, ceiling, 10*time.Millisecond)
}

func TestServerThatRestartsIsFoundAgain(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	url := server.Database("again")
	migrateUp(t, url)
	s := openURL(t, url)
	before := poll(t, s)
	server.Stop(postgres.Fast)
	_, err := s.Poll(ctx)
	require.True(t, IsUnavailable(err), "%v", err)
	server.Start()
	require.Eventually(t, func() bool { _, err := s.Poll(ctx); return err == nil }, ceiling, 10*time.Millisecond)
	require.False(t, poll(t, s).Started.Equal(before.Started))
}

func TestFailoverIsFollowedAndAReadOnlyServerLeft(t *testing.T) {
	t.Parallel()
	old := pgtest.StartServer(t)
	address := old.Database("failover")
	migrateUp(t, address)
	replica := old.Replica()
	both := strings.Replace(address, fmt.Sprintf(":%d", old.Port), fmt.Sprintf(":%d,127.0.0.1:%d", old.Port, replica.Port), 1)

	_, err := openURL(t, replica.URL("failover")).Poll(ctx)
	require.ErrorIs(t, err, ErrReadOnly)
	require.True(t, IsUnavailable(err))

	s, sole := openURL(t, both), openURL(t, address)
	before := poll(t, s)
	require.False(t, before.ReadOnly)
	// A server that turns read-only under its sessions.
	pgtest.Exec(t, address, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		_, err := s.Claim(ctx, "x", []int{1})
		return errors.Is(err, ErrReadOnly) && IsUnavailable(err)
	}, ceiling, 10*time.Millisecond)
	replica.Promote()
	require.Eventually(t, func() bool { _, err := s.Claim(ctx, "x", []int{1}); return err == nil }, ceiling, 10*time.Millisecond)
	require.False(t, poll(t, s).Started.Equal(before.Started))

	_, err = sole.Poll(ctx)
	if err == nil { // a session of before, which still reads
		sole.Reset()
		_, err = sole.Poll(ctx)
	}
	require.ErrorIs(t, err, ErrReadOnly)
}

func TestPoolerIsFoundOut(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	bouncer := pgtest.StartPgbouncer(t, d.url)
	ids := d.insert("A", keyIn(1, 0), 3)

	_, err := openURL(t, bouncer, func(c *Config) { c.Pooler = PoolerNone }).Meta(ctx)
	require.ErrorContains(t, err, "startup parameter")
	for _, pooler := range []string{PoolerAuto, PoolerTransaction} {
		s := openURL(t, bouncer, func(c *Config) { c.Pooler = pooler })
		if pooler == PoolerTransaction {
			require.ErrorIs(t, s.Listen(ctx, func() {}), ErrNoSession)
		}
		m, err := s.Meta(ctx)
		require.NoError(t, err)
		require.False(t, m.Sessions)
		require.ErrorIs(t, s.Listen(ctx, func() {}), ErrNoSession)
		require.Equal(t, ids, fetchIDs(t, s, Lane{"A", 1}))
	}
	s := openURL(t, bouncer)
	require.ErrorIs(t, s.Listen(ctx, func() {}), ErrNoSession, "even when that is the first call")
	require.NoError(t, openURL(t, d.url).SetIdle(ctx, false))
}

// Every method, through pgbouncer in transaction mode.
func TestEverythingWorksThroughAPooler(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	work(t, openURL(t, pgtest.StartPgbouncer(t, d.url), func(c *Config) { c.MaxConns = 3 }), d)
}

// A pooler that accepts session settings and loses them.
func TestSwallowedSettingsAreFoundOut(t *testing.T) {
	t.Parallel()
	require.True(t, isPooler(fmt.Errorf("connect: %w", errSwallowed)))
	d := newDatabase(t)
	s := d.open()
	config, err := pgx.ParseConfig(d.url)
	require.NoError(t, err)
	s.asOneGoes(config)
	delete(config.RuntimeParams, "enable_seqscan")
	_, err = pgx.ConnectConfig(ctx, config)
	require.ErrorIs(t, err, errSwallowed)
	require.True(t, s.foundPooler(err))
	poll(t, s)
}

func TestOddSchemaNames(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	for _, schema := range []string{"Ünï\"code schema", "it's", "select", "a.b", strings.Repeat("x", 63), `back\slash`} {
		_, err := migrations.Up(ctx, url, schema, migrations.Options{Partitions: testPartitions})
		require.NoError(t, err, schema)
		d := databaseAt(t, url)
		d.exec("SET search_path = " + pgx.Identifier{schema}.Sanitize())
		work(t, openURL(t, url, func(c *Config) { c.Schema = schema }), d)
	}
}

func TestWorkerRoleMayDoAllOfIt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
	d.exec("REVOKE ALL ON SCHEMA public FROM PUBLIC")
	name, address := pgtest.Role(t, d.url)
	require.NoError(t, migrations.Grants(ctx, d.url, "public", migrations.Roles{Worker: name}))
	work(t, openURL(t, address), d)
	worker := databaseAt(t, address)
	for _, refused := range []string{"INSERT INTO outbox_events (stream, topic) VALUES ('A', 't')", "DELETE FROM outbox_events",
		"UPDATE outbox_events SET payload = '{}'", "UPDATE outlane_config SET partitions = 1", "TRUNCATE outlane_lanes"} {
		_, err := worker.conn.Exec(ctx, refused)
		require.ErrorContains(t, err, "permission denied", refused)
	}
}

// work calls every method of a store once and sees that it has worked.
func work(t *testing.T, s *Store, d *database) {
	t.Helper()
	one, two := keyIn(1, 0), keyIn(1, 1)
	d.exec("TRUNCATE outbox_events RESTART IDENTITY")
	m, err := s.Meta(ctx)
	require.NoError(t, err)
	require.Equal(t, testPartitions, m.Partitions)
	require.True(t, poll(t, s).Backwards)
	require.NoError(t, s.SequenceReset(ctx, 0))
	require.False(t, poll(t, s).Backwards)
	if m.Sessions {
		listening, cancel := context.WithCancel(ctx)
		woken := make(chan struct{}, 100)
		ended := make(chan error)
		go func() { ended <- s.Listen(listening, func() { woken <- struct{}{} }) }()
		<-woken
		require.NoError(t, s.SetIdle(ctx, true))
		d.insert("Z", one, 1)
		<-woken
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	} else {
		require.NoError(t, s.SetIdle(ctx, true))
		d.insert("Z", one, 1)
	}
	require.NoError(t, s.SetIdle(ctx, false))

	require.NoError(t, s.ReplaceRoutes(ctx, []Route{{"event.>", "A"}}))
	routes, err := s.Routes(ctx)
	require.NoError(t, err)
	require.Equal(t, []Route{{"event.>", "A"}}, routes)
	var ids []string
	for range 5 {
		id := fmt.Sprintf("%s-%d", d.conn.Config().Database, time.Now().UnixNano())
		d.exec("INSERT INTO outbox_events (id, topic, partition_key, payload) VALUES ($1, 'event.x', $2, '{}')", id, one)
		ids = append(ids, id)
	}
	d.insert("A", two, 1)

	claims, err := s.Claim(ctx, "me", []int{0, 1})
	require.NoError(t, err)
	epoch, lane := claims[1].Epoch, Lane{"A", 1}
	epochs, err := s.Epochs(ctx, []int{1})
	require.NoError(t, err)
	require.Equal(t, epoch, epochs[1])
	streams, err := s.Streams(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"A", "Z"}, streams)
	highest, err := s.MaxSeq(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 7, highest)
	missing, err := s.Missing(ctx, 0, 8)
	require.NoError(t, err)
	require.Equal(t, []int64{8}, missing)
	arrivals, err := s.Arrivals(ctx, 3, 7, []int64{2}, []int{1})
	require.NoError(t, err)
	require.Equal(t, []int64{2, 4, 5, 6, 7}, seqsOf(arrivals))
	events, more, err := s.Fetch(ctx, lane, 2, 100, []int64{2}, 10, 1<<20)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []int64{2, 3, 4, 5, 6, 7}, seqsOf(events))

	fenced, err := s.Mark(ctx, []Mark{{Lane: lane, Epoch: epoch, IDs: ids[:1]}, {Lane: Lane{"A", 0}, Epoch: 99, IDs: []string{"x"}}})
	require.NoError(t, err)
	require.Equal(t, []Lane{{"A", 0}}, fenced)
	require.NoError(t, s.Attempt(ctx, 1, epoch, ids[1], 4, "x"))
	require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: events[1], Epoch: epoch, Reason: "r", Error: "e", Attempts: 5, Block: true}))
	require.NoError(t, s.Park(ctx, epoch, lane, events[2:4]))
	lag, err := s.Lag(ctx, 100)
	require.NoError(t, err)
	require.EqualValues(t, 2, lag[0].Events)
	require.EqualValues(t, 1, lag[0].DeadLetters)
	require.EqualValues(t, 2, lag[0].Parked)
	partitions, err := s.SaveCursors(ctx, []CursorSave{{Lane: lane, Epoch: epoch, Cursor: 6, StreamSeq: 1}, {Lane: lane, Epoch: epoch - 1}})
	require.NoError(t, err)
	require.Equal(t, []int{1}, partitions)
	require.NoError(t, s.SaveHorizon(ctx, 7))
	horizon, err := s.Horizon(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 7, horizon)
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{{Lane: lane, Member: "me", Epoch: epoch, Reason: "r", Since: time.Now()}}))
	states, err := s.LaneStates(ctx)
	require.NoError(t, err)
	require.Len(t, states, 1)

	list, err := s.ListDeadLetters(ctx, DeadLetterFilter{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	released, err := s.RetryDeadLetter(ctx, list[0].EventID)
	require.NoError(t, err)
	require.EqualValues(t, 2, released)
	claims, err = s.Claim(ctx, "me", []int{1})
	require.NoError(t, err)
	require.Equal(t, []LaneCursor{{lane, 2, 1}}, claims[0].Lanes)
	require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: events[1], Epoch: claims[0].Epoch}))
	_, err = s.SkipDeadLetter(ctx, list[0].EventID)
	require.NoError(t, err)
	require.Len(t, fetchIDs(t, s, lane), 4)
}

func TestResetAndHostsOfAnAddress(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	u.Host = "127.0.0.1:1," + u.Host // nobody is at the first
	s := openURL(t, u.String())
	poll(t, s)
	s.Reset()
	poll(t, s)
}

func TestTextIsUTF8WhateverTheDatabaseHas(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	name := "latin1_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	pgtest.Exec(t, server.URL("postgres"), "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	address := server.URL(name)
	_, err := migrations.Up(ctx, address, "public", migrations.Options{Partitions: testPartitions})
	require.NoError(t, err)
	pgtest.Exec(t, address+"&client_encoding=UTF8", `INSERT INTO outbox_events (stream, topic, partition_key, payload) VALUES ('S', 't', 'Zürich', '{"city": "Zürich"}')`)
	s := openURL(t, address)
	rows, err := s.Arrivals(ctx, 0, 1, nil, []int{partition.Of("Zürich", testPartitions)})
	require.NoError(t, err)
	require.Equal(t, "Zürich", rows[0].Key)
	require.Equal(t, `{"city": "Zürich"}`, string(rows[0].Payload))
}
