package worker

import (
	"slices"
	"time"

	"github.com/outlane/outlane/store"
)

// lane is the work of one (stream, partition) pair. All fields are guarded by the pool's lock.
//
// Events reach the queue in one of two ways. A live lane has read every visible row up to the tracker's front, and the feed hands it new rows
// as it sees them. A lane that is not live (just claimed, more waiting than memory allows, or set back after an outage) reads rows itself, in
// seq order from read on, and becomes live again when it has caught up with the front.
type lane struct {
	id     store.Lane
	part   *part
	stream *stream

	live   bool
	read   int64   // not live: every visible row at or under it was read, but for late
	late   []int64 // numbers at or under read that became visible since
	racing []int64 // numbers that became visible while the range that has them is being fetched

	queue      []store.Event
	queueBytes int64
	sending    []store.Event // the batch under way
	marking    []*markBatch
	held       []*markBatch // of marking: have failed, or wait behind one that has
	marksFail  bool         // a mark of the lane has failed and is to be tried again

	fetching   bool
	void       bool // what the fetch under way brings is to be dropped: the lane was set back meanwhile
	fetchLate  []int64
	reserved   int64
	ready      bool // in the stream's ready list
	hungry     bool // in the worker's list of lanes that found no memory
	publishing bool
	rewound    bool  // what is under way must be settled before reading again
	wanted     int64 // order sequence: the highest seq that is known to exist

	average   int64 // bytes of an event, smoothed; 0 while unknown
	parked    map[string]struct{}
	failures  int
	retryAt   time.Time
	streamSeq int64
	saved     int64
	state     laneState
}

// laneState is what an operator sees of a lane that does not flow.
type laneState struct {
	reason, detail string
	since          time.Time
	reported       string
}

// firstFetch is how many rows a lane asks for before it knows how large they are.
const firstFetch = 32

// markingMax is how many batches' worth of events may wait for their mark, a lane, before it stops sending.
const markingMax = 8

// upto is how far a lane may read now.
func (w *Worker) upto(l *lane) int64 {
	if l.stream.order == OrderSequence {
		return w.horizon
	}
	return w.front
}

// behind says whether there may be rows that l has not read.
func (w *Worker) behind(l *lane) bool {
	if l.live {
		return false
	}
	if l.stream.order == OrderSequence {
		return l.read < w.horizon && l.read < l.wanted
	}
	return len(l.late) > 0 || l.read < w.upto(l)
}

// offer hands new rows of l, ascending, to it: all with from < seq, or late ones. Bodies may be left out.
func (w *Worker) offer(l *lane, from int64, rows []store.Event) {
	if l.stream.order == OrderSequence {
		l.wanted = max(l.wanted, rows[len(rows)-1].Seq)
		return
	}
	if l.live {
		var size int64
		whole := !l.stream.down
		for _, e := range rows {
			size += eventBytes(e)
			whole = whole && !e.Omitted
		}
		if whole && w.budget.take(size) {
			l.queue = append(l.queue, rows...)
			l.queueBytes += size
			return
		}
		l.live, l.read = false, from
	}
	for _, e := range rows {
		switch {
		case e.Seq <= l.read:
			l.late = append(l.late, e.Seq)
		case l.fetching:
			l.racing = append(l.racing, e.Seq)
		}
	}
}

// fetched takes what a fetch of (l.read, upto] and l.fetchLate brought.
func (w *Worker) fetched(l *lane, events []store.Event, upto int64, more bool) {
	w.budget.give(l.reserved)
	late := l.fetchLate
	l.reserved, l.fetchLate = 0, nil
	last := upto
	if more && len(events) > 0 {
		last = events[len(events)-1].Seq
	}
	// Rows that the feed had not seen when the fetch began are left to it: it brings all rows of a transaction together.
	slices.Sort(l.racing)
	events = slices.DeleteFunc(events, func(e store.Event) bool {
		_, seen := slices.BinarySearch(l.racing, e.Seq)
		return seen || w.tracker.unseen(e.Seq)
	})
	if n := len(events); n > 0 {
		var size int64
		for _, e := range events {
			size += eventBytes(e)
		}
		w.budget.force(size)
		l.average = smooth(l.average, size/int64(n))
		l.queue = append(l.queue, events...)
		l.queueBytes += size
	}
	l.read = max(l.read, last)
	for _, seq := range late {
		if more && seq > last {
			l.late = append(l.late, seq)
		}
	}
	for _, seq := range l.racing {
		if seq <= l.read {
			l.late = append(l.late, seq)
		}
	}
	l.racing = nil
	l.live = l.stream.order == OrderCommit && l.read >= w.upto(l) && len(l.late) == 0
}

// take moves the next batch out of the queue: at most so many events and bytes, but at least one event. The budget still counts it.
func (l *lane) take(events int, bytes int64) []store.Event {
	var size int64
	n := 0
	for n < len(l.queue) && n < events {
		next := eventBytes(l.queue[n])
		if n > 0 && size+next > bytes {
			break
		}
		size += next
		n++
	}
	batch := l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.queueBytes -= size
	l.sending = batch
	return batch
}

// putBack ends the batch under way: events, its end, were not settled and return to the head of the queue; the rest gives its memory back.
func (w *Worker) putBack(l *lane, events []store.Event) {
	for _, e := range l.sending[:len(l.sending)-len(events)] {
		w.budget.give(eventBytes(e))
	}
	l.sending = nil
	if len(events) == 0 {
		return
	}
	for _, e := range events {
		l.queueBytes += eventBytes(e)
	}
	l.queue = append(slices.Clip(events), l.queue...)
}

// rewind drops what l holds unsent, so that it is read again, and gives the memory back.
func (w *Worker) rewind(l *lane) {
	low := l.unsent()
	if low == 0 {
		return
	}
	w.drop(l)
	if !l.live {
		low = min(low, l.read+1) // rows that the feed brought during a fetch may lie beyond what was read
	}
	l.live, l.read, l.late = false, low-1, nil
	l.wanted = max(l.wanted, low)
	l.rewound = len(l.marking) > 0 || l.publishing
	l.void = l.fetching
}

// drop forgets the queue.
func (w *Worker) drop(l *lane) {
	w.budget.give(l.queueBytes)
	l.queue, l.queueBytes = nil, 0
}

// unsent is the lowest seq that l knows of and has not sent; 0 if there is none.
func (l *lane) unsent() int64 {
	var low int64
	note := func(seq int64) {
		if low == 0 || seq < low {
			low = seq
		}
	}
	for _, e := range l.queue {
		note(e.Seq)
	}
	for _, seqs := range [][]int64{l.late, l.fetchLate, l.racing} {
		for _, seq := range seqs {
			note(seq)
		}
	}
	return low
}

// cursor is the seq at or under which every row of l is settled.
func (w *Worker) cursor(l *lane) int64 {
	c := w.horizon
	if !l.live && (l.stream.order == OrderCommit || l.read < l.wanted || l.part.state != partActive) {
		c = min(c, l.read)
	}
	if low := l.unsent(); low > 0 {
		c = min(c, low-1)
	}
	for _, e := range l.sending {
		c = min(c, e.Seq-1)
	}
	for _, m := range l.marking {
		c = min(c, m.low-1)
	}
	return c
}

// fetchLimit is how many rows l asks for.
func (w *Worker) fetchLimit(l *lane) int {
	if l.average == 0 {
		return min(firstFetch, w.cfg.BatchEvents)
	}
	return int(min(max(w.cfg.BatchBytes/l.average, 1), int64(w.cfg.BatchEvents)))
}

// fetchBytes is what a fetch of l may bring.
func (w *Worker) fetchBytes(l *lane) int64 {
	if l.average == 0 {
		return w.cfg.BatchBytes
	}
	return min(w.cfg.BatchBytes, 2*l.average*int64(w.fetchLimit(l)))
}

func smooth(average, sample int64) int64 {
	if average == 0 || sample > average {
		return max(sample, 1)
	}
	return max((7*average+sample)/8, 1)
}

// eventBytes is what an event counts for in memory: its payload and headers, and a flat share for the rest.
func eventBytes(e store.Event) int64 {
	return int64(len(e.Payload) + len(e.Headers) + len(e.Key) + len(e.Topic) + 256)
}
