package history_test

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/internal/history"
)

// outbox is a model of the table: transactions that overlap, insert, commit and roll back.
type outbox struct {
	events    []history.Event
	committed map[uint64]int // transaction → the moment it committed
	now       int
}

func drawOutbox(t *rapid.T, keys, partitions int) outbox {
	o := outbox{committed: map[uint64]int{}}
	var open []uint64
	next := uint64(100)
	seq := int64(0)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		o.now++
		step := rapid.IntRange(0, 9).Draw(t, "step")
		switch {
		case len(open) == 0 || step < 2:
			open = append(open, next)
			next++
		case step < 7:
			seq++
			key := rapid.IntRange(0, keys-1).Draw(t, "key")
			e := history.Event{
				ID: fmt.Sprint(seq), Seq: seq, Stream: "S", Target: "S", Key: fmt.Sprint(key), Partition: key % partitions, Processed: true,
				Xact: rapid.SampledFrom(open).Draw(t, "xact"), XactOldest: slices.Min(open),
			}
			o.events = append(o.events, e)
		default:
			x := rapid.SampledFrom(open).Draw(t, "over")
			open = slices.DeleteFunc(open, func(y uint64) bool { return x == y })
			if step < 9 {
				o.committed[x] = o.now
			}
		}
	}
	for _, x := range open {
		o.now++
		o.committed[x] = o.now
	}
	for i := range o.events {
		_, ok := o.committed[o.events[i].Xact]
		o.events[i].RolledBack = !ok
	}
	return o
}

// mustPrecede is the promise, pair by pair.
func mustPrecede(a, b history.Event) bool {
	return a.Xact < b.XactOldest || a.Xact == b.Xact && a.Seq < b.Seq || a.Strict && b.Strict && a.Seq < b.Seq
}

// slowly is the checker written as the promise reads, each event against each.
func slowly(events []history.Event, messages []history.Message) (r history.Report) {
	rows := map[string]history.Event{}
	for _, e := range events {
		rows[e.ID] = e
	}
	var first []history.Event
	seen := map[string]bool{}
	for _, m := range messages {
		e, ok := rows[m.ID]
		switch {
		case seen[m.ID]:
			r.Doubled++
		case !ok || e.RolledBack:
			r.Phantom++
		default:
			if !e.Processed && e.DeadLetter != history.OpenDeadLetter && e.DeadLetter != history.SkippedDeadLetter {
				r.Unmarked++
			}
			lane, key := false, false
			for _, b := range first {
				laneToo := e.DeadLetter == 0 && e.Parked == 0 && b.DeadLetter == 0 && b.Parked == 0 && e.Partition == b.Partition
				keyToo := (e.DeadLetter == 0 || e.Parked != 0) && (b.DeadLetter == 0 || b.Parked != 0) && e.Key == b.Key
				lane = lane || laneToo && mustPrecede(e, b)
				key = key || keyToo && mustPrecede(e, b) || e.Key == b.Key && e.Release != 0 && e.Release == b.Release && e.Seq < b.Seq
			}
			if key {
				r.OutOfOrderKey++
			}
			if key || lane {
				r.OutOfOrder++
			}
			first = append(first, e)
		}
		seen[m.ID] = true
	}
	for _, e := range events {
		if !seen[e.ID] && e.Processed && !e.RolledBack && e.DeadLetter != history.OpenDeadLetter && e.DeadLetter != history.SkippedDeadLetter {
			r.Lost++
		}
	}
	return r
}

func checked(t require.TestingT, opts history.Options, events []history.Event, messages []history.Message) history.Report {
	c := history.New(opts)
	for _, e := range events {
		require.NoError(t, c.Add(e))
	}
	for i, m := range messages {
		m.Stream, m.StreamSeq = "S", uint64(i+1)
		_, err := c.Store(m)
		require.NoError(t, err)
	}
	return c.Report()
}

func message(e history.Event) history.Message {
	return history.Message{ID: e.ID, Seq: e.Seq, Partition: e.Partition}
}

func TestAgainstTheSlowChecker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutbox(t, 6, 3)
		var messages []history.Message
		for i := range o.events {
			e := &o.events[i]
			e.Processed = rapid.IntRange(0, 5).Draw(t, "processed") > 0
			e.Strict = rapid.IntRange(0, 3).Draw(t, "strict") == 0
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0:
				e.DeadLetter = rapid.SampledFrom([]history.DeadLetter{history.OpenDeadLetter, history.RetriedDeadLetter, history.SkippedDeadLetter}).Draw(t, "letter")
			case 1:
				e.DeadLetter, e.Parked, e.Release = history.RetriedDeadLetter, history.Released, 1
			case 2:
				e.Parked, e.Release = history.Released, rapid.Int64Range(1, 2).Draw(t, "release")
			}
			for range rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1, 2}).Draw(t, "copies") {
				messages = append(messages, message(*e))
			}
		}
		messages = append(messages, history.Message{ID: "nobody"})
		place := make(map[int]int, len(messages))
		for i := range messages {
			place[i] = i + rapid.SampledFrom([]int{0, 0, 0, 3, 8, 40}).Draw(t, "late")
		}
		index := make([]int, len(messages))
		for i := range index {
			index[i] = i
		}
		sort.SliceStable(index, func(i, j int) bool { return place[index[i]] < place[index[j]] })
		shuffled := make([]history.Message, len(messages))
		for i, n := range index {
			shuffled[i] = messages[n]
		}

		want := slowly(o.events, shuffled)
		got := checked(t, history.Options{}, o.events, shuffled)
		require.Zero(t, got.Breaks)
		require.Equal(t, want.Lost, got.Lost, "lost")
		require.Equal(t, want.Phantom, got.Phantom, "phantom")
		require.Equal(t, want.Doubled, got.Doubled, "doubled")
		require.Equal(t, want.Unmarked, got.Unmarked, "unmarked")
		require.Equal(t, want.OutOfOrder, got.OutOfOrder, "out of order")
		require.Equal(t, want.OutOfOrderKey, got.OutOfOrderKey, "out of order by key")
	})
}

// TestGoodPoolIsClean delivers as the design says: each lane reads what is visible, in the order of seq, whenever it gets to it.
func TestGoodPoolIsClean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutbox(t, 6, 3)
		restored := rapid.Bool().Draw(t, "restored")
		var messages []history.Message
		done := map[string]bool{}
		for moment := 0; moment <= o.now; moment++ {
			for p := range 3 {
				if moment < o.now && rapid.Bool().Draw(t, "busy") {
					continue
				}
				for _, e := range o.events {
					at, ok := o.committed[e.Xact]
					if e.Partition == p && ok && at <= moment && !done[e.ID] {
						done[e.ID] = true
						messages = append(messages, message(e))
					}
				}
			}
		}
		events := o.events
		if restored {
			// Afterwards the table moves to a new cluster, whose transaction ids begin anew.
			events = slices.Clone(events)
			second := drawOutbox(t, 6, 3)
			last := int64(len(events))
			for _, e := range second.events {
				if e.RolledBack {
					continue
				}
				e.Seq += last
				e.ID = fmt.Sprint(e.Seq)
				e.Xact, e.XactOldest = e.Xact-90, e.XactOldest-90
				events = append(events, e)
			}
			for _, e := range events[last:] {
				messages = append(messages, message(e))
			}
		}
		r := checked(t, history.Options{}, events, messages)
		require.True(t, r.Clean(), "%+v", r.Faults)
		if !restored {
			require.Zero(t, r.Breaks)
		}
	})
}
