package history_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/partition"
)

// run feeds a checker and returns its report. Messages are given as indexes into events, in stream order.
func run(t *testing.T, opts history.Options, events []history.Event, order ...int) history.Report {
	t.Helper()
	c := history.New(opts)
	for _, e := range events {
		require.NoError(t, c.Add(e))
	}
	for i, n := range order {
		e := events[n]
		known, err := c.Store(history.Message{Stream: "S", StreamSeq: uint64(i + 1), ID: e.ID, Seq: e.Seq, Partition: e.Partition})
		require.NoError(t, err)
		require.True(t, known)
	}
	return c.Report()
}

// row is a marked event of transaction xact, inserted while oldest was the oldest open one.
func row(seq int64, key string, xact, oldest uint64, change ...func(*history.Event)) history.Event {
	e := history.Event{
		ID: fmt.Sprintf("e%d", seq), Seq: seq, Stream: "S", Target: "S", Partition: 3, Key: key, Xact: xact, XactOldest: oldest, Processed: true,
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func unmarked(e *history.Event)      { e.Processed = false }
func strict(e *history.Event)        { e.Strict = true }
func retried(e *history.Event)       { e.DeadLetter = history.RetriedDeadLetter }
func openLetter(e *history.Event)    { e.DeadLetter, e.Processed = history.OpenDeadLetter, false }
func skippedLetter(e *history.Event) { e.DeadLetter, e.Processed = history.SkippedDeadLetter, false }
func blocking(e *history.Event)      { e.Parked = history.Released }
func released(at int64) func(*history.Event) {
	return func(e *history.Event) { e.Parked, e.Release = history.Released, at }
}

// one after the other: each transaction begins when the one before is over.
func serial(keys ...string) []history.Event {
	var events []history.Event
	for i, k := range keys {
		events = append(events, row(int64(i+1), k, uint64(10+i), uint64(10+i)))
	}
	return events
}

func TestCleanDelivery(t *testing.T) {
	r := run(t, history.Options{}, serial("a", "b", "a", "b"), 0, 1, 2, 3)
	require.True(t, r.Clean())
	require.EqualValues(t, 4, r.Checked)
	require.EqualValues(t, 4, r.Stored)
	require.Empty(t, r.Faults)
}

func TestLost(t *testing.T) {
	r := run(t, history.Options{}, serial("a", "b", "c"), 0, 2)
	require.EqualValues(t, 1, r.Lost)
	require.EqualValues(t, 3, r.Checked)
	require.False(t, r.Clean())
	require.Equal(t, history.Lost, r.Faults[0].Kind)
	require.EqualValues(t, 2, r.Faults[0].Seq)
	require.Equal(t, "S", r.Faults[0].Stream)
	require.Equal(t, 3, r.Faults[0].Partition)
}

func TestWaitingIsNotLost(t *testing.T) {
	r := run(t, history.Options{}, []history.Event{row(1, "a", 10, 10), row(2, "a", 11, 11, unmarked)}, 0)
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.Waiting)
	require.EqualValues(t, 1, r.Checked)
}

func TestPhantom(t *testing.T) {
	c := history.New(history.Options{Newest: 5})
	require.NoError(t, c.Add(row(1, "a", 10, 10)))
	rolledBack := row(2, "a", 11, 11)
	rolledBack.RolledBack = true
	require.NoError(t, c.Add(rolledBack))
	for i, m := range []history.Message{{ID: "e1", Seq: 1}, {ID: "e2", Seq: 2}, {ID: "nobody", Seq: 3}, {ID: "late", Seq: 6}} {
		m.Stream, m.StreamSeq, m.Partition = "S", uint64(i+1), 3
		known, err := c.Store(m)
		require.NoError(t, err)
		require.Equal(t, i < 2, known)
	}
	r := c.Report()
	require.EqualValues(t, 2, r.Phantom)
	require.EqualValues(t, 1, r.Newer)
	require.EqualValues(t, 1, r.Checked)
	require.Equal(t, []string{"e2", "nobody"}, []string{r.Faults[0].ID, r.Faults[1].ID})
}

func TestDoubled(t *testing.T) {
	r := run(t, history.Options{}, serial("a", "b"), 0, 1, 0, 0)
	require.EqualValues(t, 2, r.Doubled)
	require.Zero(t, r.OutOfOrder, "a copy is doubled, not late")
	require.EqualValues(t, 3, r.Faults[0].StreamSeq)
}

func TestDoubledWithoutRow(t *testing.T) {
	c := history.New(history.Options{})
	for i := range 2 {
		_, err := c.Store(history.Message{Stream: "S", StreamSeq: uint64(i + 1), ID: "x", Seq: 1})
		require.NoError(t, err)
	}
	r := c.Report()
	require.EqualValues(t, 1, r.Doubled)
	require.EqualValues(t, 1, r.Phantom)
}

func TestUnmarked(t *testing.T) {
	r := run(t, history.Options{}, []history.Event{row(1, "a", 10, 10, unmarked)}, 0)
	require.EqualValues(t, 1, r.Unmarked)
	require.Equal(t, "e1", r.Faults[0].ID)
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		events        []history.Event
		order         []int
		bad, badByKey int64
	}{
		"one key":            {serial("a", "a"), []int{1, 0}, 1, 1},
		"one lane, two keys": {serial("a", "b"), []int{1, 0}, 1, 0},
		"far behind":         {serial("a", "b", "c", "a"), []int{1, 2, 3, 0}, 1, 1},
		"concurrent":         {[]history.Event{row(1, "a", 10, 10), row(2, "a", 11, 10)}, []int{1, 0}, 0, 0},
		"early insert, late commit": {
			[]history.Event{row(1, "a", 10, 10), row(2, "a", 11, 10), row(3, "a", 12, 10)}, []int{1, 2, 0}, 0, 0,
		},
		"one transaction":                    {[]history.Event{row(1, "a", 10, 9), row(2, "a", 10, 9)}, []int{1, 0}, 1, 1},
		"one transaction, two keys":          {[]history.Event{row(1, "a", 10, 9), row(2, "b", 10, 9)}, []int{1, 0}, 1, 0},
		"one transaction, two of three late": {[]history.Event{row(1, "a", 10, 9), row(2, "a", 10, 9), row(3, "a", 10, 9)}, []int{2, 0, 1}, 2, 2},
		"one transaction around another": {
			[]history.Event{row(1, "a", 10, 10), row(2, "a", 11, 10), row(3, "a", 10, 10)}, []int{1, 0, 2}, 0, 0,
		},
		"strict":           {[]history.Event{row(1, "a", 10, 10, strict), row(2, "b", 11, 10, strict)}, []int{1, 0}, 1, 0},
		"strict, one key":  {[]history.Event{row(1, "a", 10, 10, strict), row(2, "a", 11, 10, strict)}, []int{1, 0}, 1, 1},
		"one of them only": {[]history.Event{row(1, "a", 10, 10), row(2, "a", 11, 10, strict)}, []int{1, 0}, 0, 0},
		"retried dead letter": {
			[]history.Event{row(1, "a", 10, 10, retried), row(2, "a", 11, 11)}, []int{1, 0}, 0, 0,
		},
		"retried dead letter sets no order": {
			[]history.Event{row(1, "a", 10, 10), row(2, "a", 11, 11, retried)}, []int{1, 0}, 0, 0,
		},
		"retried dead letter that blocks its key": {
			[]history.Event{row(1, "a", 10, 10, retried, blocking), row(2, "b", 11, 11), row(3, "a", 12, 12, blocking)}, []int{1, 0, 2}, 0, 0,
		},
		"overtaken by a parked event": {
			[]history.Event{row(1, "a", 10, 10, retried, blocking), row(2, "a", 11, 11, blocking)}, []int{1, 0}, 1, 1,
		},
		"key overtakes its dead letter": {
			[]history.Event{row(1, "a", 10, 10, retried, blocking), row(2, "a", 11, 11)}, []int{1, 0}, 1, 1,
		},
		"released together": {
			[]history.Event{row(1, "a", 10, 10, released(7)), row(2, "a", 11, 10, released(7))}, []int{1, 0}, 1, 1,
		},
		"released apart": {
			[]history.Event{row(1, "a", 10, 10, released(8)), row(2, "a", 11, 10, released(7))}, []int{1, 0}, 0, 0,
		},
		"released together, two keys": {
			[]history.Event{row(1, "a", 10, 10, released(7)), row(2, "b", 11, 10, released(7))}, []int{1, 0}, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, history.Options{}, c.events, c.order...)
			require.Equal(t, c.bad, r.OutOfOrder)
			require.Equal(t, c.badByKey, r.OutOfOrderKey)
			require.Len(t, r.Faults, int(c.bad))
			byKey := int64(0)
			for _, f := range r.Faults {
				e := c.events[f.Seq-1]
				require.Equal(t, e.DeadLetter != 0 || e.Parked != 0, f.Listed)
				if f.ByKey {
					byKey++
				}
			}
			require.Equal(t, c.badByKey, byKey)
		})
	}
}

func TestLongTransactionAmongMany(t *testing.T) {
	events := []history.Event{row(1, "a", 10, 10)}
	order := []int{101, 0}
	for i := range int64(100) {
		events = append(events, row(2+i, fmt.Sprint("k", i), uint64(11+i), 10))
		order = append(order, int(1+i))
	}
	events = append(events, row(102, "a", 10, 10))
	require.EqualValues(t, 1, run(t, history.Options{}, events, order...).OutOfOrder)
}

func TestKeysAndLanesAreToldApart(t *testing.T) {
	events := serial("a", "a", "a", "a")
	events[1].Partition = 4
	events[2].Stream, events[2].Target = "T", "T"
	events[3].Stream = ""
	c := history.New(history.Options{})
	for _, e := range events {
		require.NoError(t, c.Add(e))
	}
	for i, n := range []int{3, 2, 1, 0} {
		e := events[n]
		_, err := c.Store(history.Message{Stream: e.Target, StreamSeq: uint64(i + 1), ID: e.ID, Partition: e.Partition})
		require.NoError(t, err)
	}
	r := c.Report()
	require.EqualValues(t, 1, r.OutOfOrder)
	require.EqualValues(t, 1, r.OutOfOrderKey, "the key is one in both partitions")
	require.Equal(t, "e1", r.Faults[0].ID)
}

func TestDeadLetters(t *testing.T) {
	events := []history.Event{row(1, "a", 10, 10, openLetter), row(2, "b", 11, 11, skippedLetter), row(3, "a", 12, 12, unmarked), row(4, "c", 13, 13, openLetter)}
	events[2].Parked = history.StillParked
	r := run(t, history.Options{}, events, 3)
	require.True(t, r.Clean(), "a dead letter that was stored all the same is no unmarked event")
	require.EqualValues(t, 1, r.DeadLetters)
	require.EqualValues(t, 1, r.Skipped)
	require.EqualValues(t, 1, r.StillParked)
	require.EqualValues(t, 4, r.Checked)
}

func TestMisplaced(t *testing.T) {
	events := serial("a", "a")
	events[1].Target = "T"
	r := run(t, history.Options{}, events, 1, 0)
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.Misplaced)
}

func TestTrimmed(t *testing.T) {
	// The stream holds event 3 and 5 only. What is missing before 3 may have expired, 4 cannot have: it came after 3. 7 overlapped with 3.
	events := serial("a", "a", "a", "a", "a")
	other := row(6, "z", 20, 20)
	other.Partition = 9
	events = append(events, other, row(7, "a", 21, 12))
	for trim, want := range map[history.Trim]struct{ lost, expired int64 }{
		history.Whole: {5, 0}, history.Head: {1, 4}, history.Sparse: {0, 5},
	} {
		c := history.New(history.Options{})
		for _, e := range events {
			require.NoError(t, c.Add(e))
		}
		for _, n := range []int{2, 4} {
			_, err := c.Store(history.Message{Stream: "S", StreamSeq: uint64(n), ID: events[n].ID, Partition: 3})
			require.NoError(t, err)
		}
		c.Trim("S", trim)
		r := c.Report()
		require.Equal(t, want.lost, r.Lost)
		require.Equal(t, want.expired, r.Expired)
		require.Equal(t, 2+want.lost, r.Checked)
	}
}

func TestRestoredCluster(t *testing.T) {
	events := []history.Event{row(1, "a", 5000, 5000), row(2, "a", 5001, 5001), row(3, "a", 70, 70), row(4, "a", 71, 71), row(5, "a", 9000, 9000)}
	r := run(t, history.Options{}, events, 0, 1, 2, 3, 4)
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.Breaks)
	r = run(t, history.Options{}, events, 0, 1, 3, 2, 4)
	require.EqualValues(t, 1, r.OutOfOrder, "inside an era order is judged")
}

func TestSequenceWithCache(t *testing.T) {
	// Two sessions took 1–50 and 51–100; the second began.
	events := []history.Event{row(1, "a", 20, 20), row(51, "a", 10, 10)}
	r := run(t, history.Options{SequenceCache: 50}, events, 1, 0)
	require.True(t, r.Clean())
	require.Zero(t, r.Breaks)
	r = run(t, history.Options{SequenceCache: 50}, events, 0, 1)
	require.EqualValues(t, 1, r.OutOfOrder)
}

func TestChangedPartitions(t *testing.T) {
	// All are in partition 1 by their rows. The key x was put there when there were 2 partitions, the key z belongs there with 4 as well.
	x, z := keyIn(t, 2, 1, 4, 3), keyIn(t, 2, 1, 4, 1)
	events := []history.Event{row(1, z, 10, 10), row(2, z, 11, 11), row(3, x, 12, 12), row(4, "", 13, 13), row(5, x, 14, 14)}
	for i := range events {
		events[i].Partition = 1
	}
	events[3].Key = keyIn(t, 3, 1, 4, 1)
	require.NotEqual(t, z, events[3].Key)
	opts := history.Options{Partitions: 4}
	require.Zero(t, run(t, opts, events, 2, 0, 1, 3, 4).OutOfOrder, "an old message sets no order in a lane of today")
	require.Zero(t, run(t, opts, events, 3, 2, 0, 1, 4).OutOfOrder, "what came before an old message is of the old number")
	require.EqualValues(t, 2, run(t, opts, events, 2, 3, 0, 1, 4).OutOfOrder, "behind the last old message lanes are compared")
	require.EqualValues(t, 1, run(t, opts, events, 4, 2, 0, 1, 3).OutOfOrderKey, "keys are compared throughout")
	require.EqualValues(t, 3, run(t, history.Options{}, events, 3, 2, 0, 1, 4).OutOfOrder, "without a change nothing is forgiven")
}

// keyIn returns a key that was in partition p of n and is in partition q of m.
func keyIn(t *testing.T, n, p, m, q int) string {
	t.Helper()
	for i := range 1000 {
		if k := fmt.Sprint("k", i); partition.Of(k, n) == p && partition.Of(k, m) == q {
			return k
		}
	}
	require.Fail(t, "no such key")
	return ""
}

func TestRefusedInput(t *testing.T) {
	c := history.New(history.Options{})
	require.NoError(t, c.Add(row(5, "a", 10, 10)))
	require.ErrorContains(t, c.Add(row(4, "a", 10, 10)), "seq 4 after 5")
	require.ErrorContains(t, c.Add(row(5, "a", 10, 10)), "added before")
	_, err := c.Store(history.Message{Stream: "S", StreamSeq: 7})
	require.NoError(t, err)
	_, err = c.Store(history.Message{Stream: "S", StreamSeq: 7})
	require.ErrorContains(t, err, "after 7")
}

func TestFirstFaultsAreListedAllAreCalled(t *testing.T) {
	var all []history.Fault
	r := run(t, history.Options{First: 2, OnFault: func(f history.Fault) { all = append(all, f) }}, serial("a", "a", "a", "a"))
	require.EqualValues(t, 4, r.Lost)
	require.Len(t, r.Faults, 2)
	require.Len(t, all, 4)
}
