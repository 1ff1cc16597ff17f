package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

func TestRefusedEventInTheMiddleIsADeadLetterAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, 1)
			e.stream("A", []string{"a.>"}, set)
			e.start()
			e.exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, headers)
				SELECT gen_random_uuid()::text, 'A', 'a.x', 'k', '{}', CASE n WHEN 7 THEN '{"Nats-Rollup": "all"}'::jsonb END FROM generate_series(1, 20) n`)
			e.drained()
			require.Equal(t, "1 2 3 4 5 6 8 9 10 11 12 13 14 15 16 17 18 19 20", strings.Join(e.seqs("A"), " "))
			require.Equal(t, 1, e.count("SELECT count(*) FROM outbox_dead_letters WHERE seq = 7 AND reason = 'reserved_header' AND attempts = 1 AND NOT blocks"))
			require.Equal(t, 1, e.count("SELECT count(*) FROM outbox_events WHERE seq = 7 AND NOT processed AND error IS NOT NULL"))
			e.check("A")
		})
	}
}

func TestEventThatMayBeMendedIsTriedAgainBeforeItIsGivenUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 1)
	e.stream("A", []string{"a.>"})
	e.start(func(c *worker.Config) { c.MaxAttempts = 2 })
	e.insert("A", "elsewhere.x", "k", 1)
	e.insert("A", "a.x", "k", 3)
	e.drained()
	require.Equal(t, []string{"2", "3", "4"}, e.seqs("A"))
	require.Equal(t, 1, e.count("SELECT count(*) FROM outbox_dead_letters WHERE seq = 1 AND attempts = 2"))
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
			e := newEnv(t, 1)
			e.stream("A", []string{"a.>"})
			w := e.start(block)
			e.exec(refuse)
			e.insert("A", "a.x", "k", 1)
			e.insert("A", "a.x", "other", 2)
			e.eventually(2, "SELECT count(*) FROM outbox_events WHERE processed")
			e.insert("A", "a.x", "k", 1)
			e.eventually(2, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")
			require.Equal(t, []string{"3", "4"}, e.seqs("A"))

			w.stop()
			w = e.start(block)
			e.insert("A", "a.x", "k", 1)
			e.eventually(3, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")

			db, err := store.Open(store.Config{URL: e.url})
			require.NoError(t, err)
			defer db.Close()
			e.exec("UPDATE outbox_events SET headers = NULL WHERE id = 'poison'")
			if decision == "retry" {
				_, err = db.RetryDeadLetter(t.Context(), "poison")
			} else {
				_, err = db.SkipDeadLetter(t.Context(), "poison")
			}
			require.NoError(t, err)
			e.drained()
			e.insert("A", "a.x", "k", 1)
			e.drained()
			if decision == "retry" {
				after = []string{"3", "4", "1", "2", "5", "6", "7"}
			} else {
				after = []string{"3", "4", "2", "5", "6", "7"}
			}
			require.Equal(t, after, e.seqs("A"))
			e.check("A")
			w.stop()
		})
	}
}

func TestNATSRestartLosesNothing(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, 8)
			e.stream("A", []string{"a.>"}, set)
			e.stream("B", []string{"b.>"}, set)
			w := e.start()
			e.produce(1, 40)
			e.eventually(1, "SELECT least(count(*), 1) FROM outbox_events WHERE processed")
			e.nats.Stop()
			e.produce(2, 40)
			ready := func() bool { ok, _ := w.Ready(); return ok }
			require.True(t, waitFor(func() bool { return !ready() }))
			require.NoError(t, e.nats.Start())
			e.produce(3, 40)
			e.drained()
			require.True(t, waitFor(ready))
			e.check("A", "B")
			require.Zero(t, e.count("SELECT count(*) FROM outbox_dead_letters"))
			require.Zero(t, e.count("SELECT count(*) FROM outbox_events WHERE attempts > 0"))
		})
	}
}

func TestMissingStreamHoldsItsLanesOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	e.stream("A", []string{"a.>"})
	e.start()
	e.insert("GONE", "gone.x", "k", 10)
	e.insert("A", "a.x", "k", 10)
	e.eventually(10, "SELECT count(*) FROM outbox_events WHERE processed")
	e.eventually(1, "SELECT least(count(*), 1) FROM outlane_lane_states WHERE stream = 'GONE' AND reason = 'stream_missing'")
	e.stream("GONE", []string{"gone.>"})
	e.drained()
	require.Equal(t, 10, len(e.seqs("GONE")))
	e.check("A", "GONE")
	e.eventually(0, "SELECT count(*) FROM outlane_lane_states WHERE stream = 'GONE' AND reason <> ''")
	require.Equal(t, 1, e.log.has("stream does not take events"), "a change of state is logged, not each attempt")
}

func TestPostgresRestartsAndCrashes(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]postgres.Mode{"restart": postgres.Fast, "crash": postgres.Immediate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t)
			e := newEnvAt(t, server.URL("postgres"), 8)
			e.stream("A", []string{"a.>"})
			e.stream("B", []string{"b.>"})
			w := e.start()
			e.start()
			e.produce(1, 40)
			e.eventually(1, "SELECT least(count(*), 1) FROM outbox_events WHERE processed")
			server.Stop(how)
			require.True(t, waitFor(func() bool { ok, _ := w.Ready(); return !ok }))
			server.Start()
			e.db.Reset()
			e.produce(2, 40)
			e.drained()
			e.check("A", "B")
			require.True(t, waitFor(func() bool { ok, _ := w.Ready(); return ok }))
		})
	}
}

func TestEveryConnectionIsTerminated(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 8)
	e.stream("A", []string{"a.>"})
	e.stream("B", []string{"b.>"})
	e.start()
	e.start()
	for i := range 5 {
		e.produce(i, 10)
		e.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'outlane'")
	}
	e.drained()
	e.check("A", "B")
}

func TestFailingMarkIsRetriedAloneAndNothingIsPublishedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 1)
	e.stream("A", []string{"a.>"})
	e.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.topic = 'a.stuck' THEN RAISE EXCEPTION 'not now'; END IF; RETURN NEW; END $$`)
	e.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	e.start()
	e.insert("A", "a.stuck", "k", 1)
	e.eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE reason = 'mark_failing'")
	e.insert("A", "a.x", "k", 5)
	e.eventually(5, "SELECT count(*) FROM outbox_events WHERE processed")
	e.exec("DROP TRIGGER refuse ON outbox_events")
	e.drained()
	s, err := e.js.Stream(t.Context(), "A")
	require.NoError(t, err)
	require.Equal(t, uint64(6), s.CachedInfo().State.LastSeq)
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, e.seqs("A"))
	e.check("A")
}

func TestTruncateRestartIdentityIsNoticedAndRowsFlowAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 2)
	e.stream("A", []string{"a.>"})
	w := e.start()
	e.insert("A", "a.x", "k", 20)
	e.drained()
	e.eventually(1, "SELECT least(count(*), 1) FROM outlane_lanes WHERE cursor >= 20")
	e.exec("TRUNCATE outbox_events RESTART IDENTITY")
	e.insert("A", "a.x", "k", 5)
	e.drained()
	require.Len(t, e.seqs("A"), 25)
	require.Positive(t, e.log.has("went backwards"))
	w.stop()
}

func TestThroughPgbouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 8)
	e.via = pgtest.StartPgbouncer(t, e.url)
	e.stream("A", []string{"a.>"})
	e.stream("B", []string{"b.>"})
	e.start()
	e.start()
	e.produce(1, 50)
	e.drained()
	e.check("A", "B")
}

func TestPausedOwnerDecidesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	e.stream("A", []string{"a.>"})
	e.start()
	e.insert("A", "a.x", "k", 10)
	e.drained()
	// Somebody else claims: the epoch moves on under the owner.
	e.exec("UPDATE outlane_partitions SET epoch = epoch + 1, owner = 'another'")
	e.insert("A", "a.x", "k", 10)
	e.drained()
	e.check("A")
	require.Positive(t, e.log.has("its epoch has moved on"))
	e.eventually(4, "SELECT count(*) FROM outlane_partitions WHERE owner LIKE 'w%'")
}

func TestWaitsForPostgresAndNATSAtItsStart(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	e := newEnvAt(t, server.URL("postgres"), 2)
	e.stream("A", []string{"a.>"})
	e.insert("A", "a.x", "k", 10)
	e.nats.Stop()
	server.Stop(postgres.Fast)
	w := e.start()
	require.True(t, waitFor(func() bool {
		_, why := w.Ready()
		all := strings.Join(why, " ")
		return strings.Contains(all, "postgres: ") && strings.Contains(all, "nats: ")
	}))
	server.Start()
	require.NoError(t, e.nats.Start())
	require.True(t, waitFor(func() bool { ok, _ := w.Ready(); return ok }))
	e.db.Reset()
	e.drained()
	require.Len(t, e.seqs("A"), 10)
}

func TestRefusesADatabaseThatDoesNotFit(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	w := e.start(func(c *worker.Config) { c.Partitions = 8 })
	err := <-w.done
	require.ErrorContains(t, err, "configured for 8 partitions, the database has 4")
	w.once.Do(func() {})

	e.via = pgtest.Database(t)
	w = e.start()
	err = <-w.done
	require.ErrorContains(t, err, "outlane migrate up")
	w.once.Do(func() {})
}

func TestSleepingPoolWakesAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	e.stream("A", []string{"a.>"})
	e.start(func(c *worker.Config) { c.IdleAfter, c.SlowPoll = 50*time.Millisecond, 10*time.Minute })
	for range 5 {
		e.eventually(2, "SELECT last_value FROM outlane_idle")
		e.insert("A", "a.x", "k", 1)
		e.drained()
	}
	require.Len(t, e.seqs("A"), 5)
}

func TestStreamIsReChosenWhenItChanges(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 4)
	e.stream("A", []string{"a.>"}, modes["sync"])
	e.start()
	e.insert("A", "a.x", "k", 10)
	e.drained()
	e.stream("A", []string{"a.>"}, func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true })
	e.insert("A", "a.x", "k", 10)
	e.drained()
	e.check("A")
}
