package worker

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/store"
)

// model is a database as far as the tracker sees it: transactions get an id before their first number, rows appear at commit.
type model struct {
	nextXID   uint64
	lastSeq   int64
	open      map[uint64][]int64
	visible   map[int64]bool
	committed map[int64]int // by seq: the moment of the commit
	inserted  map[int64]int // by seq: the moment of the insert
	xact      map[int64]uint64
	clock     int
}

func newModel() *model {
	return &model{nextXID: 100, open: map[uint64][]int64{}, visible: map[int64]bool{}, committed: map[int64]int{}, inserted: map[int64]int{}, xact: map[int64]uint64{}}
}

func (m *model) act(t *rapid.T) {
	m.clock++
	ids := make([]uint64, 0, len(m.open))
	for id := range m.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	switch kind := rapid.IntRange(0, 5).Draw(t, "act"); {
	case kind == 0 || len(ids) == 0:
		m.open[m.nextXID] = nil
		m.nextXID++
	case kind <= 3:
		id := rapid.SampledFrom(ids).Draw(t, "inserter")
		m.lastSeq++
		m.open[id] = append(m.open[id], m.lastSeq)
		m.inserted[m.lastSeq] = m.clock
		m.xact[m.lastSeq] = id
	default:
		id := rapid.SampledFrom(ids).Draw(t, "ender")
		if kind == 4 {
			for _, seq := range m.open[id] {
				m.visible[seq] = true
				m.committed[seq] = m.clock
			}
		}
		delete(m.open, id)
	}
}

func (m *model) snapshot(last int64) store.Poll {
	p := store.Poll{LastSeq: last, Xmax: m.nextXID}
	for id := range m.open {
		p.InProgress = append(p.InProgress, id)
	}
	slices.Sort(p.InProgress)
	return p
}

// read is what a round sees of a look: rows of transactions that the look's snapshot shows open count as not there yet.
func (m *model) read(l look) (found, missing []int64) {
	seen := func(seq int64) bool {
		_, open := slices.BinarySearch(l.poll.InProgress, m.xact[seq])
		return m.visible[seq] && !open
	}
	for _, seq := range l.gaps {
		if seen(seq) {
			found = append(found, seq)
		}
	}
	for seq := l.from + 1; seq <= l.to; seq++ {
		if seen(seq) {
			found = append(found, seq)
		} else {
			missing = append(missing, seq)
		}
	}
	return found, missing
}

// portions takes the gaps that were found in some portions, as a round does that finds many.
func portions(t *rapid.T, tr *tracker, l look, found []int64) {
	for len(found) > 0 && found[0] <= l.from {
		n := rapid.IntRange(1, len(found)).Draw(t, "portion")
		tr.seen(l, slices.DeleteFunc(slices.Clone(found[:n]), func(seq int64) bool { return seq > l.from }))
		found = found[n:]
	}
}

// largeLook is a look whose new numbers are read without regard to the snapshot, and whose gaps by a later one. It returns what was found.
func (m *model) largeLook(t *rapid.T, tr *tracker, l look, some func(int)) (found []int64) {
	var missing []int64
	for seq := l.from + 1; seq <= l.to; seq++ {
		if m.visible[seq] {
			found = append(found, seq)
		} else {
			missing = append(missing, seq)
		}
	}
	some(2)
	later := look{from: l.from, to: l.from, poll: m.snapshot(m.lastSeq)}
	tr.probe(&later)
	some(2)
	late, _ := m.read(later)
	portions(t, tr, later, late)
	tr.done(later, nil, nil)
	l.probed = nil
	tr.done(l, missing, nil)
	return append(late, found...)
}

func TestTrackerFindsEveryRowOnceAndInCausalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, tr := newModel(), &tracker{}
		round := map[int64]int{}
		some := func(n int) {
			for range rapid.IntRange(0, n).Draw(t, "actions") {
				m.act(t)
			}
		}
		look := func(n int) {
			last := m.lastSeq
			some(2)
			p := m.snapshot(last)
			l := tr.plan(p, rapid.Int64Range(1, 20).Draw(t, "span"))
			some(2)
			var found, missing []int64
			if large := rapid.Bool().Draw(t, "large"); large {
				found = m.largeLook(t, tr, l, some)
			} else {
				found, missing = m.read(l)
				portions(t, tr, l, found)
				tr.done(l, missing, found)
			}
			for _, seq := range found {
				_, twice := round[seq]
				require.False(t, twice, "seq %d was found twice", seq)
				round[seq] = n
			}
			for seq := range m.visible {
				_, seen := round[seq]
				require.True(t, seen || seq > tr.horizon(), "seq %d is at or under the horizon %d and was not seen", seq, tr.horizon())
			}
			for _, seqs := range m.open {
				for _, seq := range seqs {
					require.Greater(t, seq, tr.horizon(), "an open transaction may still bring it")
				}
			}
		}
		rounds := rapid.IntRange(1, 25).Draw(t, "rounds")
		for n := range rounds {
			some(8)
			look(n)
		}
		clear(m.open)
		for n := range 60 {
			l := tr.plan(m.snapshot(m.lastSeq), 20)
			found, missing := m.read(l)
			for _, seq := range found {
				round[seq] = rounds + n
			}
			tr.done(l, missing, found)
		}
		for seq := range m.visible {
			require.Contains(t, round, seq, "committed rows are found")
		}
		require.Equal(t, m.lastSeq, tr.horizon(), "with nothing open the horizon reaches the end")
		require.Zero(t, tr.waiting())
		for a := range m.visible {
			for b := range m.visible {
				if m.committed[a] < m.inserted[b] {
					require.LessOrEqual(t, round[a], round[b], "seq %d was committed before %d was inserted", a, b)
				}
				if a < b && m.xact[a] == m.xact[b] {
					require.LessOrEqual(t, round[a], round[b], "seq %d and %d are of one transaction", a, b)
				}
			}
		}
	})
}

func TestNumbersAreTakenOutOfEitherSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seqs, want []int64
		from, to := rapid.IntRange(0, 30).Draw(t, "from"), rapid.IntRange(0, 30).Draw(t, "to")
		var found []int64
		for n := range 31 {
			seq := int64(n)
			have, take := rapid.Bool().Draw(t, "have"), n >= from && n <= to && rapid.Bool().Draw(t, "take")
			if have {
				seqs = append(seqs, seq)
			}
			if take {
				found = append(found, seq)
			}
			if have && !take {
				want = append(want, seq)
			}
		}
		if len(found) == 0 {
			return
		}
		require.Equal(t, append([]int64{}, want...), append([]int64{}, without(seqs, found)...))
	})
}

func TestTrackerAsksForAGapOnlyWhenItsTransactionsHaveEnded(t *testing.T) {
	tr := &tracker{}
	p := store.Poll{LastSeq: 3, Xmax: 20, InProgress: []uint64{7, 9}}
	tr.done(tr.plan(p, 100), []int64{2}, nil)
	require.Equal(t, int64(1), tr.horizon())
	require.True(t, tr.plan(p, 100).empty(), "nothing has ended")

	p.InProgress = []uint64{7}
	l := tr.plan(p, 100)
	require.Equal(t, []int64{2}, l.gaps)
	tr.done(l, nil, nil)
	require.True(t, tr.plan(p, 100).empty(), "7 is still open and was there before")

	p.InProgress = nil
	l = tr.plan(p, 100)
	require.Equal(t, []int64{2}, l.gaps)
	tr.done(l, nil, nil)
	require.Equal(t, int64(3), tr.horizon(), "2 was rolled back")
}

func TestTrackerNeverGivesUpOnNumbersOfACachedSequence(t *testing.T) {
	tr := &tracker{cached: true}
	tr.done(tr.plan(store.Poll{LastSeq: 3, Xmin: 5, Xmax: 5}, 100), []int64{2}, nil)
	require.True(t, tr.plan(store.Poll{LastSeq: 3, Xmin: 5, Xmax: 5}, 100).empty(), "the same snapshot shows nothing new")
	l := tr.plan(store.Poll{LastSeq: 3, Xmin: 900, Xmax: 900}, 100)
	require.Equal(t, []int64{2}, l.gaps)
	tr.done(l, nil, []int64{2})
	require.Equal(t, int64(3), tr.horizon())
}
