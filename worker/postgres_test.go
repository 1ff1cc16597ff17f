package worker_test

import (
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/migrations"
)

func TestColumnsAreAddedUnderLoad(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 8)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	e.Start()
	var producer sync.WaitGroup
	producer.Go(func() { produce(e, 1, 120) })
	for _, column := range []string{"one int", "two text DEFAULT 'x'", "three jsonb"} {
		e.Exec("ALTER TABLE outbox_events ADD COLUMN " + column)
	}
	e.Exec("ALTER TABLE outbox_events DROP COLUMN one")
	producer.Wait()
	e.Drained()
	e.Check("A", "B")
}

func TestAnOperatorsLockDelaysNothingButTheMark(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("A", "a.x", "k", 5)
	e.Drained()
	ctx := t.Context()
	lock, err := e.DB.Begin(ctx)
	require.NoError(t, err)
	_, err = lock.Exec(ctx, "SELECT FROM outlane_partitions FOR UPDATE")
	require.NoError(t, err)
	_, err = lock.Exec(ctx, "SELECT FROM outbox_events FOR UPDATE")
	require.NoError(t, err)
	e.Insert("A", "a.x", "k", 5)
	require.True(t, pooltest.WaitFor(func() bool { return len(e.Seqs("A")) == 10 }), "the rows that are not locked are delivered")
	require.NoError(t, lock.Commit(ctx))
	e.Drained()
	e.Check("A")
}

func TestDumpAndRestoreToAnotherCluster(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	w := e.Start()
	produce(e, 1, 40)
	e.Drained()
	w.Stop()
	e.Insert("A", "a.x", "k", 10)

	server := pgtest.StartServer(t)
	bin, err := postgres.BinDir("")
	require.NoError(t, err)
	dump := filepath.Join(t.TempDir(), "dump")
	run(t, filepath.Join(bin, "pg_dump"), "--format=custom", "--file="+dump, e.URL)
	restored := server.Database("restored")
	run(t, filepath.Join(bin, "pg_restore"), "--no-owner", "--dbname="+restored, dump)

	e.Via = restored
	db, err := pgxpool.New(t.Context(), restored)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	e.DB = db
	e.Start()
	produce(e, 2, 40)
	e.Drained()
	e.Check("A", "B")
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestSequenceThatWasSetBackLosesNothing(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 2)
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("A", "a.x", "k", 30)
	e.Drained()
	e.Eventually(1, "SELECT least(count(*), 1) FROM outlane_lanes WHERE cursor >= 30")
	e.Exec("SELECT setval('outbox_events_seq', 5)")
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	e.Insert("A", "a.x", "k", 40)
	e.Drained()
	require.Len(t, e.Seqs("A"), 80)
	require.Positive(t, e.Log.Has("went backwards")+e.Log.Has("set back"))
}

func TestSequenceThatWasSetBackWhileNobodyLooked(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 2)
	e.Stream("A", []string{"a.>"})
	w := e.Start()
	e.Insert("A", "a.x", "k", 30)
	e.Drained()
	e.Eventually(1, "SELECT least(count(*), 1) FROM outlane_lanes WHERE cursor >= 30")
	w.Stop()
	e.Exec("SELECT setval('outbox_events_seq', 5)")
	e.Insert("A", "a.x", "k", 10)
	e.Start()
	e.Drained()
	require.Len(t, e.Seqs("A"), 40)
}

func TestCachedSequenceLosesNothingAndIsSaid(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Exec("ALTER SEQUENCE outbox_events_seq CACHE 50")
	e.Start()
	var producers sync.WaitGroup
	for range 3 {
		producers.Go(func() {
			conn := pgtest.Connect(t, e.URL) // a session of its own hands out numbers of its own block
			for range 30 {
				_, _ = conn.Exec(t.Context(), pooltest.InsertMany, "A", "a.x", "k", 1)
			}
		})
	}
	producers.Wait()
	e.Drained()
	require.Len(t, e.Seqs("A"), 90)
	require.Equal(t, 1, e.Log.Has("CACHE 1"))
}

func TestErrorsInAnotherLanguageAndStrangeErrorTexts(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.topic = 'a.stuck' AND NEW.processed THEN RAISE EXCEPTION '%', repeat('größer ', 200000); END IF; RETURN NEW; END $$`)
	e.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	e.Start()
	e.Insert("A", "a.stuck", "k", 1)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE reason = 'mark_failing' AND length(detail) < 20000")
	e.Exec("DROP TRIGGER refuse ON outbox_events")
	e.Drained()
	e.Check("A")
}

func TestRightsThatWereTakenAwayStopOnlyTheMark(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	name, via := pgtest.Role(t, e.URL)
	grantWorker(t, e.URL, name)
	e.Via = via
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("A", "a.x", "k", 3)
	e.Drained()
	e.Exec("REVOKE UPDATE ON outbox_events FROM " + name)
	e.Exec("REVOKE UPDATE (processed, processed_at, error, attempts) ON outbox_events FROM " + name)
	e.Insert("A", "a.x", "k", 3)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE reason = 'mark_failing'")
	require.Len(t, e.Seqs("A"), 6)
	grantWorker(t, e.URL, name)
	e.Drained()
	s, err := e.JS.Stream(t.Context(), "A")
	require.NoError(t, err)
	require.Equal(t, uint64(6), s.CachedInfo().State.LastSeq)
	e.Check("A")
}

func grantWorker(t *testing.T, url, role string) {
	t.Helper()
	require.NoError(t, migrations.Grants(t.Context(), url, "public", migrations.Roles{Worker: role}))
}

func TestACrashOfOnePostgresProcessStartsOver(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	e := pooltest.NewAt(t, server.URL("postgres"), 8)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	e.Start()
	produce(e, 1, 30)
	e.Drained()
	victim, other := pgtest.Connect(t, server.URL("postgres")), pgtest.Connect(t, server.URL("postgres"))
	require.NoError(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL)) // the server ends all others and recovers
	require.True(t, pooltest.WaitFor(func() bool { return other.Ping(t.Context()) != nil }))
	require.True(t, pooltest.WaitFor(func() bool { return e.DB.Ping(t.Context()) == nil }))
	e.DB.Reset()
	produce(e, 2, 30)
	e.Drained()
	e.Check("A", "B")
	require.Positive(t, e.Log.Has("starting over from the saved cursors"))
}
