package history

import (
	"fmt"
	"hash/maphash"
)

const (
	whyLost       = "marked as processed, not in its stream"
	whyRolledBack = "its transaction was rolled back"
	whyNoRow      = "no such event in the table"
	whyDoubled    = "stored again"
	whyUnmarked   = "stored, not marked as processed"
	whyLane       = "stored after an event of its lane that was inserted when this one had committed"
	whyKey        = "stored after an event of its key that was inserted when this one had committed"
	whyXact       = "stored after a later event of its transaction"
	whyStrict     = "stored after a higher seq on a route in order of sequence"
	whyRelease    = "stored after a higher seq of its key that was released with it"
)

// Store takes the next message. Those of one stream must come in the order of the stream; streams may take turns. It returns whether the
// message belongs to an event that was added.
func (c *Checker) Store(m Message) (known bool, err error) {
	if last := c.streams[m.Stream]; m.StreamSeq <= last {
		return false, fmt.Errorf("store message %d of %s: after %d", m.StreamSeq, m.Stream, last)
	}
	c.streams[m.Stream] = m.StreamSeq
	id := maphash.String(c.seed, m.ID)
	i, ok := c.ids[id]
	if !ok {
		c.ids[id] = c.push(record{seq: m.Seq, flags: unknown | stored})
		if c.opts.Newest != 0 && m.Seq > c.opts.Newest {
			c.report.Newer++
		} else {
			c.fault(faultAt(Phantom, m, whyNoRow))
		}
		return false, nil
	}
	r := c.at(i)
	known = r.flags&unknown == 0
	if r.flags&stored != 0 {
		c.fault(faultAt(Doubled, m, whyDoubled))
		return known, nil
	}
	r.flags |= stored
	switch {
	case r.flags&rolledBack != 0:
		c.fault(faultAt(Phantom, m, whyRolledBack))
		return known, nil
	case r.flags&(processed|deadLetter|skipped) == 0:
		c.fault(faultAt(Unmarked, m, whyUnmarked))
	}
	l := &c.lanes[r.lane]
	if l.target != m.Stream {
		c.report.Misplaced++
		return known, nil
	}
	c.judge(r, l, m)
	return known, nil
}

// judge compares a message with what was stored before it in its lane, its key and its release.
func (c *Checker) judge(r *record, l *lane, m Message) {
	if r.flags&oldLayout != 0 {
		// Until here the stream holds lanes of another number of partitions.
		for i := range c.lanes {
			if c.lanes[i].target == m.Stream {
				c.lanes[i].order = order{}
			}
		}
	}
	var laneWhy, keyWhy string
	if r.flags&laneExempt == 0 && m.Partition == l.partition {
		if laneWhy = l.take(r, whyLane); laneWhy == "" && r.flags&passedInLane != 0 {
			laneWhy = whyXact
		}
		c.pass(r.prevInLane, passedInLane, func(r *record) uint32 { return r.prevInLane })
		if l.minXact == 0 || r.xact < l.minXact {
			l.minXact = r.xact
		}
	}
	if r.flags&keyExempt == 0 {
		if keyWhy = c.keys[r.key].take(r, whyKey); keyWhy == "" && r.flags&passedInKey != 0 {
			keyWhy = whyXact
		}
		c.pass(r.prevInKey, passedInKey, func(r *record) uint32 { return r.prevInKey })
	}
	if r.release != 0 {
		last := &c.released[r.release-1]
		if r.seq < *last && keyWhy == "" {
			keyWhy = whyRelease
		}
		*last = max(*last, r.seq)
	}
	if laneWhy == "" && keyWhy == "" {
		return
	}
	f := faultAt(OutOfOrder, m, laneWhy)
	f.Listed = r.flags&laneExempt != 0
	if keyWhy != "" {
		c.report.OutOfOrderKey++
		f.ByKey, f.Reason = true, keyWhy
	}
	c.fault(f)
}

// take notes that r is stored now and says why it should have been stored earlier, or nothing.
func (o *order) take(r *record, why string) string {
	late := r.xact < o.maxOldest
	o.maxOldest = max(o.maxOldest, r.oldest)
	if r.flags&strict != 0 {
		if r.seq < o.maxStrict && !late {
			late, why = true, whyStrict
		}
		o.maxStrict = max(o.maxStrict, r.seq)
	}
	if !late {
		return ""
	}
	return why
}

// pass flags the earlier events of a transaction that are not stored yet. Each event is flagged once, so the whole check stays linear.
func (c *Checker) pass(prev uint32, bit flags, next func(*record) uint32) {
	for prev != 0 {
		r := c.at(prev - 1)
		if r.flags&(stored|bit) != 0 {
			return
		}
		r.flags |= bit
		prev = next(r)
	}
}

// Trim says that a stream has dropped messages by itself, so that Report does not call them lost.
func (c *Checker) Trim(stream string, t Trim) { c.trims[stream] = t }

// Report settles what was not stored and returns the counts. It is called once.
func (c *Checker) Report() Report {
	for i := range c.n {
		r := c.at(i)
		if r.flags&(unknown|rolledBack) != 0 {
			continue
		}
		switch {
		case r.flags&stored != 0:
			c.report.Stored++
		case r.flags&deadLetter != 0:
			c.report.DeadLetters++
		case r.flags&skipped != 0:
			c.report.Skipped++
		case r.flags&processed == 0 && r.flags&parked != 0:
			c.report.StillParked++
		case r.flags&processed == 0:
			c.report.Waiting++
			continue
		case c.expired(r):
			c.report.Expired++
			continue
		default:
			l := &c.lanes[r.lane]
			c.fault(faultAt(Lost, Message{Stream: l.where(), Seq: r.seq, Partition: l.partition}, whyLost))
		}
		c.report.Checked++
	}
	return c.report
}

// where is the stream to name for an event that was not found.
func (l *lane) where() string {
	if l.target == "" {
		return l.stream
	}
	return l.target
}

// expired tells whether a stream may have dropped the event. One that dropped only its head still has everything that had to come after
// a message it holds.
func (c *Checker) expired(r *record) bool {
	l := &c.lanes[r.lane]
	switch c.trims[l.where()] {
	case Sparse:
		return true
	case Head:
		return r.flags&laneExempt != 0 || l.minXact == 0 || r.oldest <= l.minXact
	default:
		return false
	}
}

func faultAt(kind Kind, m Message, why string) Fault {
	return Fault{Kind: kind, ID: m.ID, Seq: m.Seq, Stream: m.Stream, Partition: m.Partition, StreamSeq: m.StreamSeq, Reason: why}
}

func (c *Checker) fault(f Fault) {
	*c.count(f.Kind)++
	if c.opts.OnFault != nil {
		c.opts.OnFault(f)
	}
	if c.listed[f.Kind] < c.opts.First {
		c.listed[f.Kind]++
		c.report.Faults = append(c.report.Faults, f)
	}
}

func (c *Checker) count(kind Kind) *int64 {
	switch kind {
	case Lost:
		return &c.report.Lost
	case Phantom:
		return &c.report.Phantom
	case Doubled:
		return &c.report.Doubled
	case OutOfOrder:
		return &c.report.OutOfOrder
	default:
		return &c.report.Unmarked
	}
}
