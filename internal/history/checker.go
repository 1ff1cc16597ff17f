package history

import (
	"fmt"
	"hash/maphash"

	"github.com/outlane/outlane/partition"
)

// Options adjust a check. The zero value is good for a table that was never restored or repartitioned.
type Options struct {
	// Partitions is the number of partitions now; 0 if it never changed.
	Partitions int
	// SequenceCache is the CACHE of the outbox sequence. Above 1, seq says nothing about time, and eras are not looked for.
	SequenceCache int64
	// Newest, if not 0, is the highest seq that was added: a message beyond it is newer than the check and no phantom.
	Newest int64
	// First is how many faults of each kind the report lists; 0 means 20, less than 0 none.
	First int
	// OnFault, if not nil, is called for every fault.
	OnFault func(Fault)
}

// record is an event in 48 bytes, without pointers, so that the garbage collector never looks at them.
type record struct {
	seq          int64
	xact, oldest uint64
	lane, key    uint32
	// The event before this one in the same transaction and lane, or key: its index plus one.
	prevInLane, prevInKey uint32
	release               uint32
	flags                 flags
}

type flags uint32

const (
	processed flags = 1 << iota
	rolledBack
	strict
	deadLetter
	skipped
	parked
	laneExempt // out of the order of its lane
	keyExempt  // out of the order of its key
	oldLayout  // partitioned by an earlier number of partitions
	unknown    // a message without an event
	stored
	passedInLane // a later event of its transaction and lane was stored first
	passedInKey
)

const (
	chunkSize  = 1 << 16
	leastSweep = 16
)

type lane struct {
	stream, target string
	partition      int
	order
	minXact uint64 // of the stored events; 0 for none
}

// order is what has been stored of a lane or key so far.
type order struct {
	maxOldest uint64
	maxStrict int64
}

type laneID struct {
	stream, target string
	partition      int
	era            uint32
}

type inXact struct {
	index uint32 // of the lane or key
	xact  uint64
}

// Checker collects events, then messages, then reports. See the package comment for the order of calls.
type Checker struct {
	opts   Options
	seed   maphash.Seed
	chunks [][]record
	n      uint32

	ids      map[uint64]uint32
	laneIDs  map[laneID]uint32
	lanes    []lane
	keyIDs   map[uint64]uint32
	keys     []order
	releases map[uint64]uint32
	released []int64 // highest seq stored of each release

	// The last event of each open transaction in each lane and key.
	lastInLane, lastInKey map[inXact]uint32
	sweepAt               int

	era       uint32
	maxOldest uint64
	lastSeq   int64
	trims     map[string]Trim
	streams   map[string]uint64 // last stream sequence seen
	listed    map[Kind]int
	report    Report
}

// New returns an empty Checker.
func New(opts Options) *Checker {
	if opts.First == 0 {
		opts.First = 20
	}
	return &Checker{
		opts: opts, seed: maphash.MakeSeed(), sweepAt: leastSweep,
		ids: map[uint64]uint32{}, laneIDs: map[laneID]uint32{}, keyIDs: map[uint64]uint32{}, releases: map[uint64]uint32{},
		lastInLane: map[inXact]uint32{}, lastInKey: map[inXact]uint32{},
		trims: map[string]Trim{}, streams: map[string]uint64{}, listed: map[Kind]int{},
	}
}

func (c *Checker) at(i uint32) *record { return &c.chunks[i/chunkSize][i%chunkSize] }

func (c *Checker) push(r record) uint32 {
	if int(c.n)%chunkSize == 0 {
		c.chunks = append(c.chunks, make([]record, 0, chunkSize))
	}
	last := &c.chunks[len(c.chunks)-1]
	*last = append(*last, r)
	c.n++
	return c.n - 1
}

// SetNewest sets Options.Newest, for a caller that learns it from the last event it adds.
func (c *Checker) SetNewest(seq int64) { c.opts.Newest = seq }

// Add takes the next event, in the order of seq. It fails if seq goes down or the id was added before.
func (c *Checker) Add(e Event) error {
	if e.Seq < c.lastSeq {
		return fmt.Errorf("add event %q: seq %d after %d", e.ID, e.Seq, c.lastSeq)
	}
	c.lastSeq = e.Seq
	id := maphash.String(c.seed, e.ID)
	if _, ok := c.ids[id]; ok {
		return fmt.Errorf("add event %q: added before", e.ID)
	}
	r := record{seq: e.Seq, xact: e.Xact, oldest: e.XactOldest, flags: c.flagsOf(e)}
	if r.flags&rolledBack == 0 {
		c.noteEra(e)
		r.lane, r.key = c.lane(e), c.key(e)
		if e.Release != 0 {
			r.release = c.release(e)
		}
	}
	i := c.push(r)
	c.ids[id] = i
	if r.flags&(rolledBack|laneExempt) == 0 {
		c.at(i).prevInLane = link(c.lastInLane, inXact{r.lane, r.xact}, i)
	}
	if r.flags&(rolledBack|keyExempt) == 0 {
		c.at(i).prevInKey = link(c.lastInKey, inXact{r.key, r.xact}, i)
	}
	c.sweep()
	return nil
}

func link(last map[inXact]uint32, at inXact, i uint32) uint32 {
	prev := last[at]
	last[at] = i + 1
	return prev
}

func (c *Checker) flagsOf(e Event) (f flags) {
	set := func(on bool, bit flags) {
		if on {
			f |= bit
		}
	}
	set(e.Processed, processed)
	set(e.RolledBack, rolledBack)
	set(e.Strict, strict)
	set(e.DeadLetter == OpenDeadLetter, deadLetter)
	set(e.DeadLetter == SkippedDeadLetter, skipped)
	set(e.Parked == StillParked, parked)
	set(e.DeadLetter != NoDeadLetter || e.Parked != NeverParked, laneExempt)
	set(e.DeadLetter != NoDeadLetter && e.Parked == NeverParked, keyExempt)
	set(c.opts.Partitions != 0 && partition.Of(e.Key, c.opts.Partitions) != e.Partition, oldLayout|laneExempt)
	return f
}

// noteEra begins a new era where the events cannot be of one cluster with one rising sequence: an event that took its number later than
// another was in a transaction still open then, so its id is not under the other's oldest.
func (c *Checker) noteEra(e Event) {
	if c.opts.SequenceCache > 1 {
		return
	}
	if e.Xact < c.maxOldest {
		c.era++
		c.report.Breaks++
		c.maxOldest = 0
		clear(c.lastInLane)
		clear(c.lastInKey)
	}
	c.maxOldest = max(c.maxOldest, e.XactOldest)
}

func (c *Checker) lane(e Event) uint32 {
	id := laneID{e.Stream, e.Target, e.Partition, c.era}
	i, ok := c.laneIDs[id]
	if !ok {
		i = uint32(len(c.lanes))
		c.laneIDs[id] = i
		c.lanes = append(c.lanes, lane{stream: e.Stream, target: e.Target, partition: e.Partition})
	}
	return i
}

func (c *Checker) key(e Event) uint32 {
	h := c.hash(e, int64(c.era))
	i, ok := c.keyIDs[h]
	if !ok {
		i = uint32(len(c.keys))
		c.keyIDs[h] = i
		c.keys = append(c.keys, order{})
	}
	return i
}

func (c *Checker) release(e Event) uint32 {
	h := c.hash(e, e.Release)
	i, ok := c.releases[h]
	if !ok {
		c.released = append(c.released, 0)
		i = uint32(len(c.released))
		c.releases[h] = i
	}
	return i
}

// hash tells the keys of one stream apart, and with n their eras or releases.
func (c *Checker) hash(e Event, n int64) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, s := range [...]string{e.Stream, e.Target, e.Key} {
		maphash.WriteComparable(&h, len(s))
		h.WriteString(s)
	}
	maphash.WriteComparable(&h, n)
	return h.Sum64()
}

// sweep forgets transactions that can get no further event: all of them were over when some event already added was inserted.
func (c *Checker) sweep() {
	if len(c.lastInLane)+len(c.lastInKey) < c.sweepAt {
		return
	}
	if c.opts.SequenceCache <= 1 {
		for _, last := range []map[inXact]uint32{c.lastInLane, c.lastInKey} {
			for k := range last {
				if k.xact < c.maxOldest {
					delete(last, k)
				}
			}
		}
	}
	c.sweepAt = max(leastSweep, 2*(len(c.lastInLane)+len(c.lastInKey)))
}
