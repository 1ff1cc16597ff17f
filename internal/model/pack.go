package model

import (
	"cmp"
	"slices"
)

// words are a state without its names: states that differ only in which member is called what have the same words.
type words [1 + maxPartitions*(2+maxMembers)]uint64

// packer writes small numbers into a word.
type packer uint64

func (w *packer) put(n, bits int) { *w = *w<<bits | packer(n) }

func (w *packer) sets(sets ...Set) {
	for _, s := range sets {
		w.put(int(s>>1), maxEvents)
	}
}

func (w *packer) bools(bools ...bool) {
	for _, b := range bools {
		if b {
			w.put(1, 1)
		} else {
			w.put(0, 1)
		}
	}
}

// pack writes down all that s is. What a member is to the rest is in the member's own words, so sorting those by their values forgets the names.
func (c *Config) pack(s *State) words {
	var members [maxMembers][maxPartitions]uint64
	var w words
	var pool packer
	pool.put(int(s.Faults), 8)
	pool.bools(s.Joined.has(c.gone()))
	w[0] = uint64(pool)
	at := 1
	for p := range c.Partitions {
		q := &s.Partitions[p]
		for m := 1; m <= c.Members; m++ {
			members[m-1][p] = q.packOwner(s, m)
		}
		w[at], w[at+1] = q.pack(c)
		at += 2
	}
	slices.SortFunc(members[:c.Members], func(a, b [maxPartitions]uint64) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	for m := range c.Members {
		for p := range c.Partitions {
			w[at] = members[m][p]
			at++
		}
	}
	return w
}

func (q *Partition) packOwner(s *State, m int) uint64 {
	o := &q.Owners[m-1]
	var w packer
	w.bools(s.Joined.has(m), int(q.Holder) == m, q.Known.has(m), o.Current, o.Newest, o.Blocked)
	w.put(int(o.Slot), 2)
	w.put(int(o.Phase), 2)
	w.put(int(o.Doing), 2)
	w.put(int(o.Save), 3)
	w.sets(o.Seen, o.Batch, o.Rest, o.Marking, o.Statement)
	return uint64(w)
}

func (q *Partition) pack(c *Config) (uint64, uint64) {
	var table, stream packer
	table.bools(q.Committed, int(q.Holder) == c.gone())
	table.put(int(q.Cursor), 3)
	table.put(int(q.Fault), 4)
	table.sets(q.Marked, q.Dead, q.Skipped, q.Parked, q.LateMarks, q.Excused)
	stream.bools(q.Refusing)
	for _, e := range q.Stream {
		stream.put(int(e), 3)
	}
	stream.sets(q.Twice, q.Forgotten, q.Late[0], q.Late[1])
	return uint64(table), uint64(stream)
}
