package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/worker"
)

// bothHosts names two servers in one URL, as one does for a failover.
func bothHosts(t *testing.T, first, second string) string {
	t.Helper()
	at := func(url string) (before, host, after string) {
		before, rest, ok := strings.Cut(url, "127.0.0.1:")
		require.True(t, ok, url)
		port, after, _ := strings.Cut(rest, "/")
		return before, "127.0.0.1:" + port, "/" + after
	}
	before, a, after := at(first)
	_, b, _ := at(second)
	return before + a + "," + b + after
}

// caughtUp waits until the replica has everything the primary wrote.
func caughtUp(t *testing.T, primary, replica *pgtest.Server) {
	t.Helper()
	from, to := pgtest.Connect(t, primary.URL("postgres")), pgtest.Connect(t, replica.URL("postgres"))
	var lsn string
	require.NoError(t, from.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn))
	require.True(t, pooltest.WaitFor(func() bool {
		var there bool
		return to.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn).Scan(&there) == nil && there
	}))
}

func TestFailoverToAReplicaThatIsPromoted(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t)
	e := pooltest.NewAt(t, primary.URL("postgres"), 8)
	replica := primary.Replica()
	e.Via = bothHosts(t, primary.URL("postgres"), replica.URL("postgres"))
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	w := e.Start()
	e.Start()
	produce(e, 1, 40)
	e.Drained()
	produce(e, 2, 20)
	caughtUp(t, primary, replica)

	primary.Demote() // it answers, takes no writes, and is first in the list
	require.True(t, pooltest.WaitFor(func() bool { ok, _ := w.Ready(); return !ok }))
	replica.Promote()
	db, err := pgxpool.New(t.Context(), replica.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	e.DB = db
	produce(e, 3, 40)
	e.Drained()
	e.Check("A", "B")
	require.True(t, pooltest.WaitFor(func() bool { ok, _ := w.Ready(); return ok }))
}

func TestSocketsThatGoSilentAreGivenUp(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t)
	e := pooltest.NewAt(t, primary.URL("postgres"), 8)
	replica := primary.Replica()
	e.Via = bothHosts(t, primary.URL("postgres"), replica.URL("postgres"))
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	produce(e, 1, 40)
	e.Drained()
	caughtUp(t, primary, replica)

	primary.Freeze() // sockets stay open and nothing answers
	t.Cleanup(primary.Thaw)
	replica.Promote()
	db, err := pgxpool.New(t.Context(), replica.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	e.DB = db
	produce(e, 2, 40)
	e.Drained()
	e.Check("A", "B")
}

func TestStopWhilePostgresIsAwayIsNoFailure(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	e := pooltest.NewAt(t, server.URL("postgres"), 4)
	e.Stream("A", []string{"a.>"})
	w := e.Start(func(c *worker.Config) { c.DrainTimeout = time.Second })
	e.Insert("A", "a.x", "k", 5)
	e.Drained()
	server.Stop(postgres.Immediate)
	w.Stop() // requires that Run returns nil
	require.Positive(t, e.Log.Has("not everything was handed over"))
}
