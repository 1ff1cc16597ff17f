package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestClaimRaisesEpochsAndReturnsWhatWasSaved(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(2, 0)
	ids := d.insert("A", key, 3)
	epochs := claimAll(t, s, "one", 2, 3)
	require.Equal(t, map[int]int64{2: 1, 3: 1}, epochs)
	fenced, err := s.SaveCursors(ctx, []CursorSave{
		{Lane: Lane{"A", 2}, Epoch: 1, Cursor: 1, StreamSeq: 77},
		{Lane: Lane{"B", 2}, Epoch: 1, Cursor: 5},
		{Lane: Lane{"A", 3}, Epoch: 1, Cursor: 9, StreamSeq: 3},
	})
	require.NoError(t, err)
	require.Empty(t, fenced)
	poll(t, s)
	require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: Event{ID: ids[0], Seq: 1, Stream: "A", Partition: 2, Key: key}, Epoch: 1, Block: true}))
	require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: Event{ID: "x", Seq: 9, Stream: "B", Partition: 2, Key: "not blocked"}, Epoch: 1}))
	require.NoError(t, s.Park(ctx, 1, Lane{"A", 2}, []Event{{ID: ids[1], Seq: 2, Key: key}, {ID: ids[2], Seq: 3, Key: key}}))

	claims, err := s.Claim(ctx, "two", []int{3, 2, 9999})
	require.NoError(t, err)
	require.Len(t, claims, 2)
	require.Equal(t, 2, claims[0].Partition)
	require.EqualValues(t, 2, claims[0].Epoch)
	require.ElementsMatch(t, []LaneCursor{{Lane{"A", 2}, 1, 77}, {Lane{"B", 2}, 5, 0}}, claims[0].Lanes)
	require.Equal(t, []LaneKey{{Lane{"A", 2}, key}}, claims[0].ParkedKeys)
	require.Equal(t, Claim{Partition: 3, Epoch: 2, Lanes: []LaneCursor{{Lane{"A", 3}, 9, 3}}}, claims[1])
	require.Equal(t, "two", one[string](d, "SELECT owner FROM outlane_partitions WHERE partition = 2 AND claimed_at IS NOT NULL"))

	got, err := s.Epochs(ctx, []int{1, 2, 3, 9999})
	require.NoError(t, err)
	require.Equal(t, map[int]int64{1: 0, 2: 2, 3: 2}, got)
	claims, err = s.Claim(ctx, "nobody", nil)
	require.NoError(t, err)
	require.Empty(t, claims)
}

// A key with a dead letter that blocks it is blocked even if nothing is parked yet.
func TestClaimKnowsKeysThatAreBlocked(t *testing.T) {
	t.Parallel()
	s := newDatabase(t).open()
	claimAll(t, s, "me", 1)
	require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: Event{ID: "a", Seq: 1, Stream: "A", Partition: 1, Key: "k"}, Epoch: 1, Block: true}))
	claims, err := s.Claim(ctx, "me", []int{1})
	require.NoError(t, err)
	require.Equal(t, []LaneKey{{Lane{"A", 1}, "k"}}, claims[0].ParkedKeys)
}

func TestCursorsAreSavedAsGiven(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	epoch := claimAll(t, s, "me", 1)[1]
	for _, step := range []struct{ cursor, streamSeq, wantSeq int64 }{{10, 100, 100}, {5, 90, 100}, {7, 0, 100}, {8, 101, 101}} {
		_, err := s.SaveCursors(ctx, []CursorSave{{Lane: Lane{"A", 1}, Epoch: epoch, Cursor: step.cursor, StreamSeq: step.streamSeq}})
		require.NoError(t, err)
		require.Equal(t, step.cursor, one[int64](d, "SELECT cursor FROM outlane_lanes"))
		require.Equal(t, step.wantSeq, one[int64](d, "SELECT stream_seq FROM outlane_lanes"))
	}
}

func TestSaveCursorsIsFenced(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	old := claimAll(t, s, "old", 1, 2)
	now := claimAll(t, s, "new", 1)
	fenced, err := s.SaveCursors(ctx, []CursorSave{
		{Lane: Lane{"A", 2}, Epoch: old[2], Cursor: 1},
		{Lane: Lane{"A", 1}, Epoch: old[1], Cursor: 2},
		{Lane: Lane{"B", 1}, Epoch: now[1], Cursor: 3},
		{Lane: Lane{"A", 4000}, Epoch: 1, Cursor: 4},
	})
	require.NoError(t, err)
	require.Equal(t, []int{1, 4000}, fenced)
	require.Equal(t, "A2=1 B1=3", one[string](d, "SELECT string_agg(stream || partition || '=' || cursor, ' ' ORDER BY stream, partition) FROM outlane_lanes"))
}

// A decision and a claim of its partition exclude each other, in whatever order they come.
func TestDecisionsAndClaimsExcludeEachOther(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	claimAll(t, s, "old", 1, 2)
	d.insert("A", keyIn(1, 0), 1)
	event := Event{ID: "a", Seq: 1, Stream: "A", Partition: 1, Key: "k"}
	decisions := map[string]func() error{
		"SaveCursors": func() error {
			fenced, err := s.SaveCursors(ctx, []CursorSave{{Lane: Lane{"A", 1}, Epoch: 1, Cursor: 1}, {Lane: Lane{"A", 2}, Epoch: 1, Cursor: 1}})
			if err == nil && len(fenced) == 1 && fenced[0] == 1 {
				return ErrFenced
			}
			return fmt.Errorf("fenced %v, %w", fenced, err)
		},
		"DeadLetter": func() error { return s.DeadLetter(ctx, DeadLetter{Event: event, Epoch: 1}) },
		"Park":       func() error { return s.Park(ctx, 1, Lane{"A", 1}, []Event{event}) },
		"Attempt":    func() error { return s.Attempt(ctx, 1, 1, "a", 1, "") },
	}
	claim := begin(t, d.conn)
	_, err := claim.Exec(ctx, "UPDATE outlane_partitions SET epoch = epoch + 1 WHERE partition = 1")
	require.NoError(t, err)
	var decided sync.WaitGroup
	results := make(chan string, len(decisions))
	for name, decide := range decisions {
		decided.Go(func() { results <- fmt.Sprintf("%s: %t", name, errors.Is(decide(), ErrFenced)) })
	}
	watcher := databaseAt(t, d.url)
	require.Eventually(t, func() bool {
		return one[int](watcher, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == len(decisions)
	}, ceiling, 10*time.Millisecond)
	require.NoError(t, claim.Commit(ctx))
	decided.Wait()
	close(results)
	for r := range results {
		require.Contains(t, r, "true")
	}
	require.Zero(t, one[int](d, "SELECT count(*) FROM outbox_dead_letters"))
	require.Zero(t, one[int](d, "SELECT count(*) FROM outbox_parked_events"))
	require.Equal(t, 2, one[int](d, "SELECT max(partition) FROM outlane_lanes"))
	require.Equal(t, 1, one[int](d, "SELECT count(*) FROM outlane_lanes"), "the other partition's was saved")

	// And a claim leaves out what a decision holds, without waiting for it.
	held := begin(t, d.conn)
	_, err = held.Exec(ctx, "SELECT 1 FROM outlane_partitions WHERE partition = 2 FOR SHARE")
	require.NoError(t, err)
	claims, err := s.Claim(ctx, "new", []int{1, 2})
	require.NoError(t, err)
	require.Len(t, claims, 1)
	require.Equal(t, 1, claims[0].Partition)
	require.NoError(t, held.Commit(ctx))
	require.Equal(t, map[int]int64{2: 2}, claimAll(t, s, "new", 2))
}

// Whatever many do at once to overlapping partitions, nothing deadlocks.
func TestClaimsAndSavesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	orders := [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}}
	var all sync.WaitGroup
	var claimed atomic.Int64
	for _, order := range orders {
		all.Go(func() {
			for range 30 {
				claims, err := s.Claim(ctx, "x", order)
				if err != nil {
					t.Error(err)
					return
				}
				if slices.ContainsFunc(claims, func(c Claim) bool { return c.Partition == 3 }) {
					claimed.Add(1)
				}
				var saves []CursorSave
				for i := range order {
					for _, stream := range []string{"B", "A"} {
						for _, c := range claims {
							if c.Partition == order[len(order)-1-i] {
								saves = append(saves, CursorSave{Lane: Lane{stream, c.Partition}, Epoch: c.Epoch, Cursor: 1})
							}
						}
					}
				}
				if _, err := s.SaveCursors(ctx, saves); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, claimed.Load(), one[int64](d, "SELECT epoch FROM outlane_partitions WHERE partition = 3"))
}

// Two owners must never get the same epoch: a claim is on disk before it is told, also where commits are set to be lost in a crash.
func TestClaimsAreDurable(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Setting("synchronous_commit", "off"), pgtest.Setting("wal_writer_delay", "10s"),
		pgtest.Setting("autovacuum", "off"))
	url := server.Database("durable")
	migrateUp(t, url)
	s := openURL(t, url)
	d := databaseAt(t, url)
	unflushed := func() bool { return one[bool](d, "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()") }
	claimAll(t, s, "me", 1)
	require.False(t, unflushed())
	require.NoError(t, s.SaveHorizon(ctx, 0))
	d.insert("A", "k", 1)
	require.True(t, unflushed(), "the server does lose other commits")
}
