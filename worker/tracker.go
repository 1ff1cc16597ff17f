package worker

import (
	"fmt"
	"slices"

	"github.com/outlane/outlane/store"
)

// tracker follows the outbox's sequence across snapshots. Numbers are taken at insert and appear at commit, so a lower one can appear
// after a higher one. For every number that was looked at and not seen it remembers which transactions can still bring it, and asks for it
// again only when one of those has ended; when all have, the number is dead (rolled back).
//
// It rests on two facts. A transaction has its id before it takes a number (the insert trigger's order), and Poll reads the sequence before
// it takes its snapshot: so whoever took a number at or under Poll.LastSeq, and is still open, is in Poll.InProgress. And a round takes the
// table as it was at that snapshot: rows that a transaction in InProgress has brought meanwhile count as not seen yet, so that all rows of one
// transaction are seen in one round, and with a row all that was committed before it was inserted. Within a round the lower numbers come first.
//
// With a sequence that caches numbers (CACHE above 1) the first fact fails: gaps then never die, and the horizon stands still.
//
// Not safe for concurrent use.
type tracker struct {
	front    int64 // every number at or under it has been looked at
	groups   []gapGroup
	cached   bool
	lastLook string // cached sequences: the snapshot of the last look at the gaps
}

// gapGroup are numbers that may still be brought by the same transactions.
type gapGroup struct {
	seqs []int64  // ascending
	open []uint64 // ascending; for cached sequences nil, and the group never dies
}

// look is what one round asks for: rows with from < seq <= to, and the numbers in gaps.
type look struct {
	from, to int64
	gaps     []int64
	poll     store.Poll
	probed   []int // indexes into groups
}

func (l look) empty() bool { return l.from >= l.to && len(l.gaps) == 0 }

// plan says what to look at after p. At most span new numbers are asked for at once.
func (t *tracker) plan(p store.Poll, span int64) look {
	l := look{from: t.front, to: min(max(p.LastSeq, t.front), t.front+span), poll: p}
	if t.cached {
		snapshot := snapshotText(p)
		if snapshot == t.lastLook {
			return l
		}
		t.lastLook = snapshot
	}
	t.probe(&l)
	return l
}

// probe adds to l the gaps that transactions may have brought which its snapshot shows ended.
func (t *tracker) probe(l *look) {
	for i, g := range t.groups {
		if t.cached || len(stillOpen(g.open, l.poll)) < len(g.open) {
			l.gaps = append(l.gaps, g.seqs...)
			l.probed = append(l.probed, i)
		}
	}
	slices.Sort(l.gaps)
}

// seen takes numbers of l.gaps that were found, ascending, before the look is done.
func (t *tracker) seen(l look, found []int64) {
	if len(found) == 0 {
		return
	}
	for _, i := range l.probed {
		t.groups[i].seqs = without(t.groups[i].seqs, found)
	}
}

// without removes found from seqs, both ascending. Where there are many, found is a narrow range of them: the shorter side moves up to the other.
func without(seqs, found []int64) []int64 {
	lo, _ := slices.BinarySearch(seqs, found[0])
	hi, ok := slices.BinarySearch(seqs, found[len(found)-1])
	if ok {
		hi++
	}
	kept := slices.DeleteFunc(seqs[lo:hi], func(seq int64) bool { _, ok := slices.BinarySearch(found, seq); return ok })
	if len(kept) == hi-lo {
		return seqs
	}
	kept = seqs[:lo+len(kept)]
	if lo > len(seqs)-hi {
		return append(kept, seqs[hi:]...)
	}
	gone := hi - len(kept)
	copy(seqs[gone:hi], kept)
	return seqs[gone:]
}

// done takes what the look found: missing are the numbers of (from, to] that no visible row had, found those of l.gaps that had one and that
// seen was not given.
func (t *tracker) done(l look, missing, found []int64) {
	t.seen(l, found)
	if !t.cached {
		for _, i := range l.probed {
			t.groups[i].open = stillOpen(t.groups[i].open, l.poll)
		}
	}
	if len(missing) > 0 && (t.cached || len(l.poll.InProgress) > 0) {
		g := gapGroup{seqs: missing}
		if !t.cached {
			g.open = slices.Clone(l.poll.InProgress)
		}
		t.groups = append(t.groups, g)
	}
	t.front = l.to
	t.compact()
}

// compact drops groups that are empty or dead and merges those that wait for the same transactions.
func (t *tracker) compact() {
	kept := t.groups[:0]
	for _, g := range t.groups {
		if len(g.seqs) == 0 || (!t.cached && len(g.open) == 0) {
			continue
		}
		if i := slices.IndexFunc(kept, func(k gapGroup) bool { return slices.Equal(k.open, g.open) }); i >= 0 {
			sorted := g.seqs[0] > kept[i].seqs[len(kept[i].seqs)-1]
			if kept[i].seqs = append(kept[i].seqs, g.seqs...); !sorted {
				slices.Sort(kept[i].seqs)
			}
			continue
		}
		kept = append(kept, g)
	}
	clear(t.groups[len(kept):])
	t.groups = kept
}

// unseen says whether seq was looked at and not seen.
func (t *tracker) unseen(seq int64) bool {
	for _, g := range t.groups {
		if _, ok := slices.BinarySearch(g.seqs, seq); ok {
			return true
		}
	}
	return false
}

// unseenNumbers are all numbers that were looked at and may still appear, ascending.
func (t *tracker) unseenNumbers() []int64 {
	var seqs []int64
	for _, g := range t.groups {
		seqs = append(seqs, g.seqs...)
	}
	slices.Sort(seqs)
	return seqs
}

// horizon is the highest number at or under which no row can appear any more.
func (t *tracker) horizon() int64 {
	h := t.front
	for _, g := range t.groups {
		h = min(h, g.seqs[0]-1)
	}
	return h
}

// waiting is how many numbers may still appear.
func (t *tracker) waiting() int {
	n := 0
	for _, g := range t.groups {
		n += len(g.seqs)
	}
	return n
}

func snapshotText(p store.Poll) string { return fmt.Sprint(p.Xmin, p.Xmax, p.InProgress) }

// stillOpen are those of open that p's snapshot shows in progress.
func stillOpen(open []uint64, p store.Poll) []uint64 {
	var still []uint64
	for _, x := range open {
		if _, ok := slices.BinarySearch(p.InProgress, x); ok || x >= p.Xmax {
			still = append(still, x)
		}
	}
	return still
}
