package model

import "slices"

// Fault is what is wrong with a state.
type Fault uint8

// What can be wrong.
const (
	Fine Fault = iota
	OutOfOrder
	Doubled
	OldMark
	OldDecision
	OldCursor
	MarkedUnstored
	CursorTooFar
	ParkedForEver
	TwoEpochs
	Stuck
)

var faultTexts = [...]string{
	Fine:           "nothing",
	OutOfOrder:     "an event is in the stream before an earlier one of its lane",
	Doubled:        "the stream has stored an event twice inside its duplicate window",
	OldMark:        "an event was marked by an owner of an older claim",
	OldDecision:    "a decision about events was taken by an owner of an older claim",
	OldCursor:      "a cursor was saved by an owner of an older claim",
	MarkedUnstored: "an event is marked and not in the stream: it is lost",
	CursorTooFar:   "the saved cursor has passed an event that is not settled: it is lost",
	ParkedForEver:  "an event is parked and nothing blocks its key: nobody will release it",
	TwoEpochs:      "two members have the same epoch",
	Stuck:          "no run without further faults leads from here to all partitions owned and all events settled",
}

func (f Fault) String() string { return faultTexts[f] }

// check looks at what must hold at every moment.
func (c *Config) check(s *State) Fault {
	for i := range c.Partitions {
		if f := c.checkPartition(&s.Partitions[i]); f != Fine {
			return f
		}
	}
	return Fine
}

func (c *Config) checkPartition(p *Partition) Fault {
	if p.Fault != Fine {
		return p.Fault
	}
	if p.Marked&^p.stored() != 0 {
		return MarkedUnstored
	}
	for e := 1; e <= int(p.Cursor); e++ {
		if !p.settled().has(e) {
			return CursorTooFar
		}
	}
	if p.Parked&^p.settledOtherwise() != 0 && p.Dead&c.Blocking == 0 {
		return ParkedForEver
	}
	if c.outOfOrder(p) {
		return OutOfOrder
	}
	owners := 0
	for m := range c.Members {
		if p.Owners[m].Current && p.Owners[m].Phase == Active {
			owners++
		}
	}
	if owners > 1 && !slices.Contains(c.Tolerated, TwoEpochs) {
		return TwoEpochs
	}
	return Fine
}

// settledOtherwise are events that need no release.
func (q *Partition) settledOtherwise() Set { return q.Marked | q.Skipped }

// outOfOrder says whether an event was stored first after a later one that had to wait for it. The late event and those after it had no order:
// their transactions were open together. An event that became a dead letter on a route that does not block, or that a person skipped, has given up
// its place.
func (c *Config) outOfOrder(p *Partition) bool {
	var after Set // events stored so far
	for _, n := range p.Stream {
		e := int(n)
		if e == 0 {
			return false
		}
		if later := after &^ upto(e); later != 0 && e != c.Late && !p.Excused.has(e) {
			return true
		}
		after |= SetOf(e)
	}
	return false
}

// goal says whether everything is done: each partition has a living owner that works on it under the current epoch and has nothing under way, all
// events are settled, and the cursor has passed them. A dead letter, and what is parked behind it, waits for a person.
func (c *Config) goal(s *State) bool {
	for i := range c.Partitions {
		p := &s.Partitions[i]
		h := int(p.Holder)
		if h < 1 || h > c.Members || !s.Joined.has(h) || !p.Known.has(h) {
			return false
		}
		o := &p.Owners[h-1]
		if o.Slot != Running || o.Phase != Active || !o.Current || !o.quiet() {
			return false
		}
		if p.settled() != upto(c.Events) || int(p.Cursor) != c.Events {
			return false
		}
	}
	return true
}
