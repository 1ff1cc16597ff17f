package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

func TestRefusedEventInTheMiddleIsADeadLetterAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 1)
			e.Stream("A", []string{"a.>"}, set)
			e.Start()
			e.Exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers)
				SELECT gen_random_uuid()::text, 'A', 'a.x', 'k', '{}', CASE n WHEN 7 THEN '{"Nats-Rollup": "all"}'::jsonb END FROM generate_series(1, 20) n`)
			e.Drained()
			require.Equal(t, "1 2 3 4 5 6 8 9 10 11 12 13 14 15 16 17 18 19 20", strings.Join(e.Seqs("A"), " "))
			require.Equal(t, 1, e.Count("SELECT count(*) FROM outbox_dead_letters WHERE seq = 7 AND reason = 'reserved_header' AND attempts = 1 AND NOT blocks"))
			require.Equal(t, 1, e.Count("SELECT count(*) FROM outbox_events WHERE seq = 7 AND NOT processed AND error IS NOT NULL"))
			e.Check("A")
		})
	}
}

func TestEventThatMayBeMendedIsTriedAgainBeforeItIsGivenUp(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start(func(c *worker.Config) { c.MaxAttempts = 3 }) // the second pause is longer than the time between two saves of the lanes' states
	e.Insert("A", "elsewhere.x", "k", 1)
	e.Insert("A", "a.x", "k", 3)
	e.Drained()
	require.Equal(t, []string{"2", "3", "4"}, e.Seqs("A"))
	require.Equal(t, 1, e.Count("SELECT count(*) FROM outbox_dead_letters WHERE seq = 1 AND attempts = 3"))
	e.Insert("A", "elsewhere.x", "k", 1)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE reason = 'wrong_stream'")
	e.Eventually(2, "SELECT count(*) FROM outbox_dead_letters")
	e.Eventually(0, "SELECT count(*) FROM outlane_lane_states")
}

// block configures that A's dead letters block their key.
func block(c *worker.Config) {
	c.Routes = []worker.Route{{Topics: []string{"a.>", "bad"}, Stream: "A", Block: true, MaxAttempts: 1}}
}

const refuse = `INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers)
	VALUES ('poison', 'A', 'a.poison', 'k', '{}', '{"nats-msg-id": "x"}')`

func TestDeadLetterBlocksItsKeyUntilAPersonDecides(t *testing.T) {
	t.Parallel()
	for decision, after := range map[string][]string{"retry": {"3", "4", "1", "2", "5", "6"}, "skip": {"3", "4", "2", "5", "6"}} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 1)
			e.Stream("A", []string{"a.>"})
			w := e.Start(block)
			e.Exec(refuse)
			e.Insert("A", "a.x", "k", 1)
			e.Insert("A", "a.x", "other", 2)
			e.Eventually(2, "SELECT count(*) FROM outbox_events WHERE processed")
			e.Insert("A", "a.x", "k", 1)
			e.Eventually(2, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")
			require.Equal(t, []string{"3", "4"}, e.Seqs("A"))

			w.Stop()
			w = e.Start(block)
			e.Insert("A", "a.x", "k", 1)
			e.Eventually(3, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")

			db, err := store.Open(store.Config{URL: e.URL})
			require.NoError(t, err)
			defer db.Close()
			e.Exec("UPDATE outbox_events SET headers = NULL WHERE id = 'poison'")
			if decision == "retry" {
				_, err = db.RetryDeadLetter(t.Context(), "poison")
			} else {
				_, err = db.SkipDeadLetter(t.Context(), "poison")
			}
			require.NoError(t, err)
			e.Drained()
			e.Insert("A", "a.x", "k", 1)
			e.Drained()
			if decision == "retry" {
				after = []string{"3", "4", "1", "2", "5", "6", "7"}
			} else {
				after = []string{"3", "4", "2", "5", "6", "7"}
			}
			require.Equal(t, after, e.Seqs("A"))
			e.Check("A")
			w.Stop()
		})
	}
}

func TestNATSRestartLosesNothing(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 8)
			e.Stream("A", []string{"a.>"}, set)
			e.Stream("B", []string{"b.>"}, set)
			w := e.Start()
			produce(e, 1, 40)
			e.Eventually(1, "SELECT least(count(*), 1) FROM outbox_events WHERE processed")
			e.Server.Stop()
			produce(e, 2, 40)
			ready := func() bool { ok, _ := w.Ready(); return ok }
			require.True(t, pooltest.WaitFor(func() bool { return !ready() }))
			require.NoError(t, e.Server.Start())
			produce(e, 3, 40)
			e.Drained()
			require.True(t, pooltest.WaitFor(ready))
			e.Check("A", "B")
			require.Zero(t, e.Count("SELECT count(*) FROM outbox_dead_letters"))
			require.Zero(t, e.Count("SELECT count(*) FROM outbox_events WHERE attempts > 0"))
		})
	}
}

func TestMissingStreamHoldsItsLanesOnly(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("GONE", "gone.x", "k", 10)
	e.Insert("A", "a.x", "k", 10)
	e.Eventually(10, "SELECT count(*) FROM outbox_events WHERE processed")
	e.Eventually(1, "SELECT least(count(*), 1) FROM outlane_lane_states WHERE stream = 'GONE' AND reason = 'stream_missing'")
	e.Stream("GONE", []string{"gone.>"})
	e.Drained()
	require.Equal(t, 10, len(e.Seqs("GONE")))
	e.Check("A", "GONE")
	e.Eventually(0, "SELECT count(*) FROM outlane_lane_states WHERE stream = 'GONE' AND reason <> ''")
	require.Equal(t, 1, e.Log.Has("stream does not take events"), "a change of state is logged, not each attempt")
}

func TestAWaitEndsWhenNothingIsLeftThatWaits(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Start()
	for i := range 3 {
		e.Insert("GONE", "gone.x", fmt.Sprint("k", i), 5)
	}
	e.Eventually(1, "SELECT least(count(*), 1) FROM outlane_lane_states WHERE stream = 'GONE'")
	e.Exec("DELETE FROM outbox_events")
	e.Eventually(0, "SELECT count(*) FROM outlane_lane_states")
	require.Eventually(t, func() bool { return e.Log.Has("no lane waits for the stream any more") == 1 }, pooltest.Ceiling, 10*time.Millisecond)
	e.Stream("GONE", []string{"gone.>"})
	e.Insert("GONE", "gone.x", "k1", 5)
	e.Drained()
	require.Len(t, e.Seqs("GONE"), 5)
}

func TestPostgresRestartsAndCrashes(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]postgres.Mode{"restart": postgres.Fast, "crash": postgres.Immediate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t)
			e := pooltest.NewAt(t, server.URL("postgres"), 8)
			e.Stream("A", []string{"a.>"})
			e.Stream("B", []string{"b.>"})
			w := e.Start()
			e.Start()
			produce(e, 1, 40)
			e.Eventually(1, "SELECT least(count(*), 1) FROM outbox_events WHERE processed")
			server.Stop(how)
			require.True(t, pooltest.WaitFor(func() bool { ok, _ := w.Ready(); return !ok }))
			server.Start()
			e.DB.Reset()
			produce(e, 2, 40)
			e.Drained()
			e.Check("A", "B")
			require.True(t, pooltest.WaitFor(func() bool { ok, _ := w.Ready(); return ok }))
		})
	}
}

func TestEveryConnectionIsTerminated(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 8)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	e.Start()
	for i := range 5 {
		produce(e, i, 10)
		e.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'outlane'")
	}
	e.Drained()
	e.Check("A", "B")
}

func TestFailingMarkIsRetriedAloneAndNothingIsPublishedAgain(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.topic = 'a.stuck' THEN RAISE EXCEPTION 'not now'; END IF; RETURN NEW; END $$`)
	e.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	e.Start()
	e.Insert("A", "a.stuck", "k", 1)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE reason = 'mark_failing'")
	e.Insert("A", "a.x", "k", 5)
	e.Eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	e.Exec("DROP TRIGGER refuse ON outbox_events")
	e.Drained()
	s, err := e.JS.Stream(t.Context(), "A")
	require.NoError(t, err)
	require.Equal(t, uint64(6), s.CachedInfo().State.LastSeq)
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, e.Seqs("A"))
	e.Check("A")
}

func TestTruncateRestartIdentityIsNoticedAndRowsFlowAgain(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 2)
	e.Stream("A", []string{"a.>"})
	w := e.Start()
	e.Insert("A", "a.x", "k", 20)
	e.Drained()
	e.Eventually(1, "SELECT least(count(*), 1) FROM outlane_lanes WHERE cursor >= 20")
	e.Exec("TRUNCATE outbox_events RESTART IDENTITY")
	e.Insert("A", "a.x", "k", 5)
	e.Drained()
	require.Len(t, e.Seqs("A"), 25)
	require.Positive(t, e.Log.Has("went backwards"))
	w.Stop()
}

func TestThroughPgbouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 8)
	e.Via = pgtest.StartPgbouncer(t, e.URL)
	e.Stream("A", []string{"a.>"})
	e.Stream("B", []string{"b.>"})
	e.Start()
	e.Start()
	produce(e, 1, 50)
	e.Drained()
	e.Check("A", "B")
}

func TestPausedOwnerDecidesNothing(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	// Somebody else claims: the epoch moves on under the owner.
	e.Exec("UPDATE outlane_partitions SET epoch = epoch + 1, owner = 'another'")
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	e.Check("A")
	require.Positive(t, e.Log.Has("its epoch has moved on"))
	e.Eventually(4, "SELECT count(*) FROM outlane_partitions WHERE owner LIKE 'w%'")
}

func TestWaitsForPostgresAndNATSAtItsStart(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	e := pooltest.NewAt(t, server.URL("postgres"), 2)
	e.Stream("A", []string{"a.>"})
	e.Insert("A", "a.x", "k", 10)
	e.Server.Stop()
	server.Stop(postgres.Fast)
	w := e.Start()
	require.True(t, pooltest.WaitFor(func() bool {
		_, why := w.Ready()
		all := strings.Join(why, " ")
		return strings.Contains(all, "postgres: ") && strings.Contains(all, "nats: ")
	}))
	server.Start()
	require.NoError(t, e.Server.Start())
	require.True(t, pooltest.WaitFor(func() bool { ok, _ := w.Ready(); return ok }))
	e.DB.Reset()
	e.Drained()
	require.Len(t, e.Seqs("A"), 10)
}

func TestRefusesADatabaseThatDoesNotFit(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	w := e.Start(func(c *worker.Config) { c.Partitions = 8 })
	err := w.Ended()
	require.ErrorContains(t, err, "configured for 8 partitions, the database has 4")

	w = e.Start(func(c *worker.Config) { c.KeyField = "account" })
	require.ErrorContains(t, w.Ended(), `the partition key field "account", the database has "team_id"`)

	e.Via = pgtest.Database(t)
	w = e.Start()
	err = w.Ended()
	require.ErrorContains(t, err, "outlane migrate up")
}

func TestSleepingPoolWakesAtOnce(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Start(func(c *worker.Config) { c.IdleAfter, c.SlowPoll = 50*time.Millisecond, 10*time.Minute })
	for range 5 {
		e.Eventually(2, "SELECT last_value FROM outlane_idle")
		e.Insert("A", "a.x", "k", 1)
		e.Drained()
	}
	require.Len(t, e.Seqs("A"), 5)
}

func TestStreamIsReChosenWhenItChanges(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"}, modes["sync"])
	e.Start()
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	e.Stream("A", []string{"a.>"}, func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true })
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	e.Check("A")
}

func TestPreparedTransactionsHoldOnlyTheCursor(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	e := pooltest.NewAt(t, server.URL("postgres"), 1)
	e.Stream("A", []string{"a.>"})
	e.Start(func(c *worker.Config) { c.PollOnly, c.IdleAfter = true, 50*time.Millisecond })
	tx, err := e.DB.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), pooltest.InsertMany, "A", "a.x", "k", 2)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "PREPARE TRANSACTION 'p'")
	require.NoError(t, err)
	_ = tx.Rollback(t.Context())
	e.Insert("A", "a.x", "k", 3)
	e.Eventually(3, "SELECT count(*) FROM outbox_events WHERE processed")
	require.Zero(t, e.Count("SELECT coalesce(max(cursor), 0) FROM outlane_lanes"))
	e.Exec("COMMIT PREPARED 'p'")
	e.Drained()
	require.Equal(t, []string{"3", "4", "5", "1", "2"}, e.Seqs("A"))
	e.Eventually(5, "SELECT coalesce(max(cursor), 0) FROM outlane_lanes")
	require.Equal(t, 1, e.Count("SELECT last_value FROM outlane_idle"), "inserts were never asked to notify")
}
