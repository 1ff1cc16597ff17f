package store

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

// letters is a lane with events of one key, and its owner.
type letters struct {
	*database
	s     *Store
	lane  Lane
	key   string
	ids   []string
	epoch int64
}

func newLetters(t *testing.T, n int) *letters {
	t.Helper()
	d := newDatabase(t)
	l := &letters{database: d, s: d.open(), lane: Lane{"A", 1}, key: keyIn(1, 0)}
	l.ids = d.insert("A", l.key, n)
	l.claim()
	return l
}

func (l *letters) claim() Claim {
	l.t.Helper()
	claims, err := l.s.Claim(ctx, "me", []int{1})
	require.NoError(l.t, err)
	l.epoch = claims[0].Epoch
	return claims[0]
}

// event is the lane's event with that seq.
func (l *letters) event(seq int) Event {
	return Event{ID: l.ids[seq-1], Seq: int64(seq), Stream: "A", Topic: "t", Key: l.key, Partition: 1}
}

func (l *letters) dead(seq int, block bool) {
	l.t.Helper()
	require.NoError(l.t, l.s.DeadLetter(ctx, DeadLetter{Event: l.event(seq), Epoch: l.epoch, Reason: "too_large", Error: "no good", Attempts: 5, Block: block}))
}

func (l *letters) park(seqs ...int) {
	l.t.Helper()
	var events []Event
	for _, seq := range seqs {
		events = append(events, l.event(seq))
	}
	require.NoError(l.t, l.s.Park(ctx, l.epoch, l.lane, events))
}

func (l *letters) cursor(c int64) {
	l.t.Helper()
	poll(l.t, l.s)
	fenced, err := l.s.SaveCursors(ctx, []CursorSave{{Lane: l.lane, Epoch: l.epoch, Cursor: c}})
	require.NoError(l.t, err)
	require.Empty(l.t, fenced)
}

func (l *letters) errorOf(seq int) *string {
	l.t.Helper()
	return one[*string](l.database, "SELECT error FROM outbox_events WHERE id = $1", l.ids[seq-1])
}

func (l *letters) fetched() []int64 {
	l.t.Helper()
	events, _, err := l.s.Fetch(ctx, l.lane, 0, 1<<62, nil, 1000, 1<<20)
	require.NoError(l.t, err)
	return seqsOf(events)
}

func (l *letters) list(f DeadLetterFilter) []DeadLetterEntry {
	l.t.Helper()
	list, err := l.s.ListDeadLetters(ctx, f)
	require.NoError(l.t, err)
	return list
}

func TestDeadLetterIsListedAndNotProcessed(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 2)
	l.dead(1, true)
	require.Equal(t, []int64{2}, l.fetched())
	require.Equal(t, "no good", *l.errorOf(1))
	require.False(t, one[bool](l.database, "SELECT processed FROM outbox_events WHERE seq = 1"))
	require.Equal(t, 5, one[int](l.database, "SELECT attempts FROM outbox_events WHERE seq = 1"))
	list := l.list(DeadLetterFilter{})
	require.Len(t, list, 1)
	require.WithinDuration(t, time.Now(), list[0].CreatedAt, time.Hour)
	list[0].CreatedAt = time.Time{}
	require.Equal(t, DeadLetterEntry{EventID: l.ids[0], Seq: 1, Lane: l.lane, Key: l.key, Topic: "t", Reason: "too_large", Error: "no good",
		Attempts: 5, Blocks: true}, list[0])
}

func TestDecisionsUnderAnotherEpochAreRefused(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 1)
	e := l.event(1)
	require.ErrorIs(t, l.s.DeadLetter(ctx, DeadLetter{Event: e, Epoch: l.epoch + 1}), ErrFenced)
	require.ErrorIs(t, l.s.Park(ctx, l.epoch-1, l.lane, []Event{e}), ErrFenced)
	require.ErrorIs(t, l.s.Attempt(ctx, 1, l.epoch-1, e.ID, 1, "x"), ErrFenced)
	require.ErrorIs(t, l.s.Attempt(ctx, 4000, l.epoch, e.ID, 1, "x"), ErrFenced)
	require.Nil(t, l.errorOf(1))
	require.Empty(t, l.list(DeadLetterFilter{}))
	require.Zero(t, one[int](l.database, "SELECT count(*) FROM outbox_parked_events"))
}

func TestErrorsAreStoredWhateverTheyAre(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 1)
	for _, text := range []string{"", "a\x00b", "bad \xff\xfe utf8 \xe2\x82", strings.Repeat("é€😀", 2000), "x" + strings.Repeat("€", 5000),
		strings.Repeat("\x00", 10000), strings.Repeat("\xff", 10000)} {
		require.NoError(t, l.s.Attempt(ctx, 1, l.epoch, l.ids[0], 1, text))
		got := *l.errorOf(1)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, len(got), errorBytes)
		require.Equal(t, clean(text), got)
		require.NoError(t, l.s.DeadLetter(ctx, DeadLetter{Event: l.event(1), Epoch: l.epoch, Reason: text, Error: text, Attempts: 1}))
		require.Equal(t, clean(text), l.list(DeadLetterFilter{})[0].Error)
	}
	require.Equal(t, "ab", clean("a\x00b"))
	require.Equal(t, "bad � utf8 �", clean("bad \xff\xfe utf8 \xe2\x82"))
	require.Len(t, clean("x"+strings.Repeat("€", 5000)), errorBytes-1, "cut at a rune's border")
}

func TestAttemptsSaturate(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 1)
	for _, c := range []struct{ attempts, want int }{{3, 3}, {math.MaxInt32, math.MaxInt32}, {math.MaxInt32 + 1, math.MaxInt32}, {math.MaxInt, math.MaxInt32}, {-1, 0}} {
		require.NoError(t, l.s.Attempt(ctx, 1, l.epoch, l.ids[0], c.attempts, "x"))
		require.Equal(t, c.want, one[int](l.database, "SELECT attempts FROM outbox_events"))
	}
}

func TestParkedEventsNameTheDeadLetter(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 4)
	l.dead(1, true)
	l.park(2, 3)
	l.park(3) // again, as after an answer that was lost
	require.Equal(t, []int64{4}, l.fetched())
	require.Equal(t, "parked behind dead letter "+l.ids[0], *l.errorOf(2))
	require.EqualValues(t, 2, l.list(DeadLetterFilter{})[0].Parked)
	require.NoError(t, l.s.Park(ctx, l.epoch, l.lane, nil))
}

func TestRetryPutsTheKeyBackInOrder(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 5)
	other := l.insert("A", keyIn(1, 1), 1) // 6
	l.dead(2, true)
	l.park(3, 4)
	require.NoError(t, l.s.Park(ctx, l.epoch, l.lane, []Event{{ID: other[0], Seq: 6, Key: keyIn(1, 1)}}))
	l.cursor(5)
	listener := pgtest.Connect(t, l.url)
	_, err := listener.Exec(ctx, "LISTEN "+one[string](l.database, "SELECT 'outlane_' || left(md5('public'), 16)"))
	require.NoError(t, err)

	released, err := l.s.RetryDeadLetter(ctx, l.ids[1])
	require.NoError(t, err)
	require.EqualValues(t, 2, released)
	require.Equal(t, []int64{1, 2, 3, 4, 5}, l.fetched(), "the other key stays parked")
	for seq := 2; seq <= 4; seq++ {
		require.Nil(t, l.errorOf(seq))
	}
	require.Zero(t, one[int](l.database, "SELECT attempts FROM outbox_events WHERE seq = 2"))
	_, err = listener.WaitForNotification(ctx)
	require.NoError(t, err)

	require.ErrorIs(t, l.s.Attempt(ctx, 1, l.epoch, l.ids[0], 1, "x"), ErrFenced, "the owner must claim again")
	claim := l.claim()
	require.Equal(t, []LaneCursor{{Lane: l.lane, Cursor: 1}}, claim.Lanes)
	require.Equal(t, []LaneKey{{l.lane, keyIn(1, 1)}}, claim.ParkedKeys)

	require.Empty(t, l.list(DeadLetterFilter{}))
	entry := l.list(DeadLetterFilter{Resolved: true})[0]
	require.Equal(t, "retried", entry.Resolution)
	require.False(t, entry.ResolvedAt.IsZero())
	_, err = l.s.RetryDeadLetter(ctx, l.ids[1])
	require.ErrorIs(t, err, ErrResolved)
	_, err = l.s.SkipDeadLetter(ctx, l.ids[1])
	require.ErrorIs(t, err, ErrResolved)
	_, err = l.s.RetryDeadLetter(ctx, "unknown")
	require.ErrorIs(t, err, ErrNoDeadLetter)

	// It fails again: the entry opens again.
	l.dead(2, true)
	l.park(3)
	require.Equal(t, []int64{1, 4, 5}, l.fetched())
	entry = l.list(DeadLetterFilter{})[0]
	require.Empty(t, entry.Resolution)
	require.True(t, entry.ResolvedAt.IsZero())
	require.EqualValues(t, 1, entry.Parked)
}

func TestSkipReleasesWhatWaits(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 4)
	l.dead(2, true)
	l.park(3, 4)
	l.cursor(4)
	released, err := l.s.SkipDeadLetter(ctx, l.ids[1])
	require.NoError(t, err)
	require.EqualValues(t, 2, released)
	require.Equal(t, []int64{1, 3, 4}, l.fetched())
	require.Equal(t, "no good", *l.errorOf(2))
	require.False(t, one[bool](l.database, "SELECT processed FROM outbox_events WHERE seq = 2"))
	claim := l.claim()
	require.Equal(t, []LaneCursor{{Lane: l.lane, Cursor: 2}}, claim.Lanes)
	require.Empty(t, claim.ParkedKeys)
	require.Equal(t, "skipped", l.list(DeadLetterFilter{Resolved: true})[0].Resolution)
}

func TestAKeyStaysBlockedByItsOtherDeadLetters(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 5)
	l.dead(1, true)
	l.park(2, 3)
	l.dead(4, true) // decided before the first one's retry was known, say
	l.park(5)
	l.cursor(5)
	released, err := l.s.RetryDeadLetter(ctx, l.ids[0])
	require.NoError(t, err)
	require.Zero(t, released)
	require.Equal(t, []int64{1}, l.fetched())
	require.Equal(t, []LaneCursor{{Lane: l.lane, Cursor: 0}}, l.claim().Lanes)
	released, err = l.s.RetryDeadLetter(ctx, l.ids[3])
	require.NoError(t, err)
	require.EqualValues(t, 3, released)
	require.Equal(t, []int64{1, 2, 3, 4, 5}, l.fetched())
}

func TestSkippingWhatBlocksNothingDisturbsNobody(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 2)
	l.dead(1, false)
	_, err := l.s.SkipDeadLetter(ctx, l.ids[0])
	require.NoError(t, err)
	require.NoError(t, l.s.Attempt(ctx, 1, l.epoch, l.ids[1], 1, "x"))
}

func TestTwoPeopleDecideOnce(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 3)
	l.dead(1, true)
	l.park(2, 3)
	results := make(chan error, 8)
	for i := range cap(results) {
		decide := l.s.RetryDeadLetter
		if i%2 == 0 {
			decide = l.s.SkipDeadLetter
		}
		go func() {
			_, err := decide(ctx, l.ids[0])
			results <- err
		}()
	}
	succeeded := 0
	for range cap(results) {
		if err := <-results; err == nil {
			succeeded++
		} else {
			require.True(t, errors.Is(err, ErrResolved), err)
		}
	}
	require.Equal(t, 1, succeeded)
	require.EqualValues(t, 2, one[int64](l.database, "SELECT epoch FROM outlane_partitions WHERE partition = 1"))
}

func TestDeadLettersAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	l := newLetters(t, 4)
	for seq := 1; seq <= 4; seq++ {
		l.dead(seq, false)
	}
	l.exec("UPDATE outbox_dead_letters SET topic = 'other', stream = 'B', partition = 2, partition_key = 'k' WHERE seq = 3")
	l.exec("UPDATE outbox_dead_letters SET seq = 2 WHERE seq = 3")
	_, err := l.s.SkipDeadLetter(ctx, l.ids[3])
	require.NoError(t, err)
	ids := func(f DeadLetterFilter) (list []string) {
		for _, e := range l.list(f) {
			list = append(list, e.EventID)
		}
		return list
	}
	ptr := func(s string) *string { return &s }
	two := 2
	listed := slices.Clone(l.ids)
	slices.Sort(listed[1:3]) // of one number, by id
	require.Equal(t, listed[:3], ids(DeadLetterFilter{}))
	require.Equal(t, listed, ids(DeadLetterFilter{Resolved: true}))
	require.Equal(t, l.ids[2:3], ids(DeadLetterFilter{Stream: ptr("B")}))
	require.Equal(t, l.ids[2:3], ids(DeadLetterFilter{Partition: &two}))
	require.Equal(t, l.ids[2:3], ids(DeadLetterFilter{Topic: "other"}))
	require.Equal(t, l.ids[2:3], ids(DeadLetterFilter{Key: ptr("k")}))
	require.Equal(t, l.ids[1:2], ids(DeadLetterFilter{EventID: l.ids[1]}))
	require.Empty(t, ids(DeadLetterFilter{Stream: ptr("")}))
	page := l.list(DeadLetterFilter{Limit: 2})
	require.Len(t, page, 2)
	require.Equal(t, listed[2:3], ids(DeadLetterFilter{Limit: 2, AfterSeq: page[1].Seq, AfterID: page[1].EventID}))
}
