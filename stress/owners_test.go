package stress_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/lease/leasetest"
	"github.com/outlane/outlane/worker"
)

// progress waits until n more events are processed.
func (s *scene) progress(n int) {
	s.T.Helper()
	const processed = "SELECT count(*) FROM outbox_events WHERE processed"
	goal := s.Count(processed) + n
	require.True(s.T, pooltest.WaitFor(func() bool { return s.Count(processed) >= goal }), "events flow")
}

// edits are what a person may do to lease rows. $1 is a partition, $2 a member.
var edits = []string{
	"UPDATE outlane_leases SET holder = $2, transitions = transitions + 1 WHERE partition = $1",
	"UPDATE outlane_leases SET holder = $2 WHERE partition = $1",
	"UPDATE outlane_leases SET holder = $2, transitions = 0 WHERE partition >= $1",
	"UPDATE outlane_leases SET transitions = transitions + 1 WHERE partition = $1 OR $2 = ''",
	"UPDATE outlane_leases SET holder = '' WHERE partition = $1 OR $2 = ''",
	"DELETE FROM outlane_leases WHERE partition = $1 OR $2 = ''",
}

func TestLeasesEditedByHandReorderNothing(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, partitions)
			members := []string{s.Start(sameRoutes).Member(), s.Start(sameRoutes).Member()}
			s.backlog(aFew)
			s.produce()
			r := rand.New(rand.NewPCG(1, 1))
			for n := range 40 {
				s.Exec(edits[n%len(edits)], r.IntN(partitions), members[r.IntN(2)])
				s.progress(1 + r.IntN(5))
			}
			s.finish()
			s.owners()
			s.verdict()
		})
	}
}

// TestTwoOwnersForEverReorderNothing gives each of two workers a backend of its own, so that each holds every lease all the time.
func TestTwoOwnersForEverReorderNothing(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, partitions)
			s.backlog(aFew)
			s.produce()
			apart := func(c *worker.Config) { sameRoutes(c); c.Leases = (&leasetest.Memory{}).Backend(t) }
			s.Start(apart)
			other := s.Start(apart)
			for n := range 6 {
				s.poison(n)
				require.True(t, pooltest.WaitFor(func() bool { return s.Log.Has("its epoch has moved on") >= 3*(n+1) }), "they meet")
				s.progress(20)
			}
			other.Stop()
			s.finish()
			s.mend()
			s.verdict()
		})
	}
}

// TestWhatIsReadAfterAnotherClaimIsNotSentOnABlockingRoute has another owner claim the partition and set an event's key aside in the moment in
// which the key's next event appears.
func TestWhatIsReadAfterAnotherClaimIsNotSentOnABlockingRoute(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, 1)
			s.Start(sameRoutes)
			for n := range 5 {
				s.Insert("A", "a.x", "other", 1)
				s.Drained() // it has just heard that the epoch is its own
				require.NoError(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error {
					for _, step := range []string{
						"UPDATE outlane_partitions SET epoch = epoch + 1, owner = 'another-' || $1::text",
						`INSERT INTO outbox_events (id, stream, topic, partition_key, payload) VALUES ('first-' || $1::text, 'A', 'a.x', 'key-' || $1::text, '{}')`,
						`UPDATE outbox_events SET error = 'refused' WHERE id = 'first-' || $1::text`,
						`INSERT INTO outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks)
							SELECT id, seq, stream, partition, partition_key, topic, 'refused', 'refused', 1, true FROM outbox_events WHERE id = 'first-' || $1::text`,
						`INSERT INTO outbox_events (id, stream, topic, partition_key, payload) VALUES ('second-' || $1::text, 'A', 'a.x', 'key-' || $1::text, '{}')`,
					} {
						if _, err := tx.Exec(t.Context(), step, fmt.Sprint(n)); err != nil {
							return err
						}
					}
					return nil
				}))
				s.Eventually(n+1, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")
			}
			for _, m := range s.Stored("A") {
				require.Equal(t, "other", m.Header.Get("Outlane-Key"))
			}
		})
	}
}

func TestHandoverWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, partitions)
			first := s.worker("first")
			s.produce()
			s.backlog(aFew)
			s.progress(1)
			s.Server.Stop()
			s.worker("second")
			s.owners("first", "second") // handed over with events that wait
			third := s.worker("third")
			first.Kill()
			s.owners("second", "third") // and taken
			third.Terminate()
			ends(third, t)
			s.Eventually(partitions, "SELECT count(*) FROM outlane_leases WHERE holder LIKE 'second-%'")
			require.NoError(t, s.Server.Start())
			s.finish()
			s.verdict()
		})
	}
}

func TestHandoverWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"joined": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t)
			s := newSceneOn(pooltest.NewAt(t, server.URL("postgres"), partitions), "fast")
			first := s.worker("first")
			s.produce()
			s.backlog(aFew)
			s.progress(1)
			s.stop()
			server.Stop(postgres.Immediate)
			s.worker("second")
			if kill {
				first.Kill()
			}
			server.Start()
			s.DB.Reset()
			s.produce()
			if kill {
				s.owners("second")
			} else {
				s.owners("first", "second")
			}
			s.finish()
			s.verdict()
		})
	}
}

func TestWorkersThatKeepDying(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, partitions)
			s.backlog(aFew)
			s.produce()
			s.keepDying(t)
			last := s.worker("last")
			last.Alone()
			s.finish()
			s.verdict()
		})
	}
}

// TestALockOnOnePartitionHoldsUpItsTakeoverAlone has a person keep a partition's row locked, as an open transaction does that decides about a dead letter.
func TestALockOnOnePartitionHoldsUpItsTakeoverAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, "fast", partitions)
	victim := s.worker("victim")
	victim.Alone()
	s.backlog(aFew)
	s.Drained()
	tx, err := s.DB.Begin(t.Context())
	require.NoError(t, err)
	release := sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	t.Cleanup(release)
	_, err = tx.Exec(t.Context(), "SELECT FROM outlane_partitions WHERE partition = 0 FOR UPDATE")
	require.NoError(t, err)
	victim.Kill()
	other := s.worker("other")
	s.backlog(aFew)
	s.Eventually(0, "SELECT count(*) FROM outbox_events WHERE NOT processed AND partition > 0")
	require.Positive(t, s.Count("SELECT count(*) FROM outbox_events WHERE NOT processed"))
	other.Says("somebody has its row in outlane_partitions locked")
	release()
	other.Alone()
	s.finish()
	s.verdict()
}
