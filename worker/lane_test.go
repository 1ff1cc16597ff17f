package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/store"
)

// laneAt is a worker with one lane, which is live and has read everything up to front; a number above horizon may still appear.
func laneAt(t *testing.T, order Order, front, horizon int64) (*Worker, *lane) {
	t.Helper()
	cfg := Config{BatchEvents: 10, BatchBytes: 1 << 20, Metrics: NewMetrics()}
	w, err := New(Config{ID: "w", Metrics: cfg.Metrics, Database: &store.Store{}, Broker: nobody{}, Leases: nobody{}})
	require.NoError(t, err)
	w.front, w.horizon = front, horizon
	s := &stream{name: "A", order: order}
	w.streams["A"] = s
	p := &part{n: 1, known: true, lanes: map[string]*lane{}}
	w.parts[1] = p
	return w, w.laneOf(p, "A")
}

func TestCursorOfADrainingPartitionDoesNotFollowTheHorizon(t *testing.T) {
	for _, order := range []Order{OrderCommit, OrderSequence} {
		w, l := laneAt(t, order, 100, 90)
		l.read, l.wanted = 90, 90
		require.Equal(t, int64(90), w.cursor(l))
		w.stopPart(l.part, true)
		// Number 95 appears and is handed to nobody here, and new rows come.
		w.front, w.horizon = 200, 200
		require.Equal(t, int64(90), w.cursor(l), "order %s", order)
	}
}

func TestCursorStaysBehindWhatIsNotSettled(t *testing.T) {
	w, l := laneAt(t, OrderCommit, 100, 100)
	require.Equal(t, int64(100), w.cursor(l))
	l.queue = []store.Event{{Seq: 80}, {Seq: 95}}
	require.Equal(t, int64(79), w.cursor(l))
	l.take(1, 1<<20)
	require.Equal(t, int64(79), w.cursor(l), "under way")
	l.marking = []*markBatch{{lane: l, low: 70}}
	require.Equal(t, int64(69), w.cursor(l), "acknowledged and not marked")
	l.marking = nil
	w.putBack(l, nil)
	require.Equal(t, int64(94), w.cursor(l))
	l.late = []int64{60}
	require.Equal(t, int64(59), w.cursor(l), "late rows that are not fetched")
}

func TestLaneThatIsHaltedDuringAFetchDoesNotSkipWhatItFetches(t *testing.T) {
	w, l := laneAt(t, OrderCommit, 100, 100)
	l.live, l.read, l.fetching = false, 20, true
	w.front, w.horizon = 120, 120
	w.offer(l, 100, []store.Event{{Seq: 110}})
	w.stopPart(l.part, true)
	require.Equal(t, int64(20), l.read)
	require.Equal(t, int64(20), w.cursor(l))
}

func TestLaneInOrderOfSequenceReadsWhatWasSeenBeforeItsClaim(t *testing.T) {
	w, _ := laneAt(t, OrderSequence, 100, 90)
	p := &part{n: 2, lanes: map[string]*lane{}, cursors: map[string]store.LaneCursor{"A": {Cursor: 90}}}
	w.parts[2] = p
	l := w.laneOf(p, "A")
	p.known = true
	require.False(t, w.behind(l), "it waits for the horizon")
	w.horizon = 100
	require.True(t, w.behind(l))
	require.Equal(t, int64(90), w.cursor(l))
}

func TestAnswerAboutAnEarlierClaimOfOursIsNoConflict(t *testing.T) {
	w, l := laneAt(t, OrderCommit, 100, 100)
	old := l.part
	w.held[1] = time.Time{}
	w.stopPart(old, true)
	w.parts[1] = &part{n: 1, epoch: old.epoch + 1, lanes: map[string]*lane{}}
	w.fence(old)
	require.Zero(t, w.held[1], "the next claim does not wait")
	require.Equal(t, partActive, w.parts[1].state)
	w.fence(w.parts[1])
	require.NotZero(t, w.held[1])
	require.Equal(t, partStopped, w.parts[1].state)
}
