package store

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLagCountsWhatWaits(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 9)
	l.insert("A", keyIn(2, 0), 3)
	l.insert("", keyIn(2, 0), 1)
	l.exec("UPDATE outbox_events SET created_at = now() - interval '90 seconds' WHERE seq = 4")
	l.exec("UPDATE outbox_events SET created_at = 'infinity' WHERE seq = 10")
	l.exec("UPDATE outbox_events SET created_at = now() + interval '1 hour' WHERE seq = 13")
	_, err := l.s.Mark(ctx, []Mark{{Lane: l.lane, Epoch: l.epoch, IDs: l.ids[:3]}})
	require.NoError(t, err)
	l.dead(6, true)
	l.park(7, 8)

	list, err := l.s.Lag(ctx, 100)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.InDelta(t, 90, list[1].OldestAge.Seconds(), 60)
	require.WithinDuration(t, time.Now(), list[1].OldestCreatedAt, time.Hour)
	list[0].OldestCreatedAt, list[1].OldestAge, list[1].OldestCreatedAt = time.Time{}, 0, time.Time{}
	require.Equal(t, []LaneLag{
		{Lane: Lane{"", 2}, Events: 1, OldestSeq: 13},
		{Lane: Lane{"A", 1}, Events: 3, OldestSeq: 4, DeadLetters: 1, Parked: 2},
		{Lane: Lane{"A", 2}, Events: 3, OldestSeq: 10},
	}, list)

	for _, c := range []struct {
		limit, events int
		atLeast       bool
	}{{4, 3, false}, {3, 3, false}, {2, 2, true}, {0, 0, true}} {
		list, err = l.s.Lag(ctx, c.limit)
		require.NoError(t, err)
		require.EqualValues(t, c.events, list[1].Events, "%+v", c)
		require.Equal(t, c.atLeast, list[1].AtLeast, "%+v", c)
	}

	l.cursor(4)
	list, err = l.s.Lag(ctx, 100)
	require.NoError(t, err)
	require.EqualValues(t, 2, list[1].Events, "above the saved cursor")
	require.EqualValues(t, 5, list[1].OldestSeq)
	l.exec("TRUNCATE outbox_events RESTART IDENTITY")
	l.insert("A", l.key, 2)
	list, err = l.s.Lag(ctx, 100)
	require.NoError(t, err)
	require.EqualValues(t, 2, list[0].Events, "a cursor of an earlier sequence does not count")
}

func TestLaneStatesAreTheirOwnersWord(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	epochs := claimAll(t, s, "one", 1, 2)
	maps.Copy(epochs, claimAll(t, s, "two", 3))
	since := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	state := func(stream string, partition int, member, reason string) LaneState {
		return LaneState{Lane: Lane{stream, partition}, Member: member, Epoch: epochs[partition], Reason: reason, Detail: "why \x00\xff", Since: since}
	}
	read := func() []LaneState {
		list, err := s.LaneStates(ctx)
		require.NoError(t, err)
		for i := range list {
			require.Equal(t, "why \uFFFD", list[i].Detail)
			list[i].Detail = "why \x00\xff"
		}
		return list
	}
	a1, b2, a3 := state("A", 1, "one", "stream_full"), state("B", 2, "one", "timeout"), state("A", 3, "two", "no_leader")
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{a1, b2, a3, state("C", 3, "one", "not its owner"), state("D", 1, "one", "")}))
	require.Equal(t, []LaneState{a1, a3, b2}, read())

	a1.Reason = "timeout"
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{state("A", 1, "one", "first"), a1, state("B", 2, "one", "")}))
	require.Equal(t, []LaneState{a1, a3}, read())
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{state("A", 3, "one", "")}))
	require.Equal(t, []LaneState{a1, a3}, read(), "nobody speaks for another")

	claimAll(t, s, "one", 2)
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{b2}))
	require.Equal(t, []LaneState{a1, a3}, read(), "nor for what it was before its last claim")
	b2.Epoch++
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{b2}))
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{state("B", 2, "one", "")}))
	require.Equal(t, []LaneState{a1, a3, b2}, read(), "nor takes back what it says since")
	require.NoError(t, s.SaveLaneStates(ctx, []LaneState{{Lane: b2.Lane, Member: "one", Epoch: b2.Epoch, Since: since}}))

	claimAll(t, s, "two", 1)
	require.Equal(t, []LaneState{a3}, read())
	claimAll(t, s, "two", 3)
	require.Empty(t, read(), "what was said before the last claim is over")
	require.NoError(t, s.SaveLaneStates(ctx, nil))
}
