package worker

import (
	"slices"
	"time"

	"github.com/outlane/outlane/store"
)

// part is a partition while this worker has it claimed. Guarded by the pool's lock.
type part struct {
	n        int
	epoch    int64
	verified time.Time // when the database last said that the epoch is ours
	state    partState
	known    bool // its lanes have been looked up; lanes that appear from now on begin live
	lanes    map[string]*lane
	cursors  map[string]store.LaneCursor
	parked   map[store.Lane]map[string]struct{}
	busy     int // fetches and publishes under way
	marking  int // batches that wait for their mark
}

type partState int

const (
	partActive   partState = iota
	partDraining           // starts nothing new; what is under way is settled
	partStopped            // lost: nothing of it may be written any more
)

// quiet says whether nothing of p is under way.
func (p *part) quiet() bool { return p.busy == 0 && p.marking == 0 }

// stream is what lanes of one stream share. Guarded by the pool's lock.
type stream struct {
	name    string
	order   Order
	ready   []*lane
	running int
	checked bool // the pre-flight has passed

	// An outage that concerns the whole stream: since when it lasts is in its lanes' states.
	down           bool
	reason, detail string
	failures       int
	retryAt        time.Time
	probe          *lane // the one lane that tries for all
}

// streamOf returns the stream's shared state.
func (w *Worker) streamOf(name string) *stream {
	s, ok := w.streams[name]
	if !ok {
		s = &stream{name: name, order: w.routes.order(name)}
		w.streams[name] = s
	}
	return s
}

// laneOf returns the lane, made on first use.
func (w *Worker) laneOf(p *part, name string) *lane {
	l, ok := p.lanes[name]
	if ok {
		return l
	}
	id := store.Lane{Stream: name, Partition: p.n}
	l = &lane{id: id, part: p, stream: w.streamOf(name), parked: p.parked[id]}
	saved := p.cursors[name]
	l.read, l.saved, l.streamSeq = saved.Cursor, saved.Cursor, saved.StreamSeq
	l.live = p.known && l.stream.order == OrderCommit
	if !p.known {
		l.wanted = w.front // rows above the horizon have been looked at already, and are not handed over again
	}
	p.lanes[name] = l
	return l
}

// mayStart says whether l may start anything now, as far as its partition and its stream go.
func (w *Worker) mayStart(l *lane) bool {
	if l.part.state != partActive {
		return false
	}
	now := time.Now()
	s := l.stream
	return !now.Before(l.retryAt) && (!s.down || !now.Before(s.retryAt) && (s.probe == nil || s.probe == l))
}

// wantsRows says whether l has room for rows that it has not read.
func (w *Worker) wantsRows(l *lane) bool {
	return !l.fetching && !l.rewound && w.behind(l) && len(l.queue) < w.cfg.BatchEvents && l.queueBytes < w.cfg.BatchBytes
}

// kick starts what l can do now. It is called after every change of l's state.
func (w *Worker) kick(l *lane) {
	if !w.mayStart(l) {
		return
	}
	if len(l.marking) == 0 && !l.publishing {
		l.rewound = false
	}
	s := l.stream
	if w.wantsRows(l) {
		if need := w.fetchBytes(l); w.budget.take(need) {
			l.reserved, l.fetching = need, true
			l.part.busy++
			if s.down {
				s.probe = l
			}
			w.fetchQueue = append(w.fetchQueue, l)
			w.fetchWake.Signal()
		} else if !l.hungry {
			l.hungry = true
			w.hungry = append(w.hungry, l)
		}
	}
	if len(l.queue) > 0 && !l.publishing && !l.ready && len(l.marking) < markingMax {
		if s.down {
			s.probe = l
		}
		l.ready = true
		s.ready = append(s.ready, l)
		w.pump(s)
	}
}

// pump starts publishes of s, as many as may run at once.
func (w *Worker) pump(s *stream) {
	for s.running < w.cfg.Publishers && len(s.ready) > 0 {
		l := s.ready[0]
		s.ready = s.ready[1:]
		l.ready = false
		if l.part.state != partActive || l.publishing || len(l.queue) == 0 {
			continue
		}
		s.running++
		l.publishing = true
		l.part.busy++
		w.running.Go(func() { w.publish(l) })
	}
}

// feedHungry lets lanes try again that found no memory, one after the other, until the first of them still finds none.
func (w *Worker) feedHungry() {
	for len(w.hungry) > 0 {
		l := w.hungry[0]
		if w.mayStart(l) && w.wantsRows(l) && !w.budget.has(w.fetchBytes(l)) {
			return
		}
		w.hungry = w.hungry[1:]
		l.hungry = false
		w.kick(l)
	}
}

// eachLane calls f for each of s's lanes that are worked on.
func (w *Worker) eachLane(s *stream, f func(*lane)) {
	for _, p := range w.parts {
		if l := p.lanes[s.name]; l != nil && p.state == partActive {
			f(l)
		}
	}
}

// endProbe lets another lane try for a stream that is down, if l was the one that did and has nothing under way any more.
func (w *Worker) endProbe(l *lane) {
	if s := l.stream; s.probe == l && !l.fetching && !l.publishing && !l.ready {
		s.probe = nil
		w.eachLane(s, w.kick)
	}
}

// retryLater kicks l after d.
func (w *Worker) retryLater(l *lane, d time.Duration) {
	l.retryAt = time.Now().Add(d)
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kick(l)
	})
}

// settleBusy ends one fetch or publish of p.
func (w *Worker) settleBusy(p *part) {
	p.busy--
	w.noteQuiet(p)
}

// noteQuiet tells whoever waits for p.
func (w *Worker) noteQuiet(p *part) {
	if p.state != partActive && p.quiet() {
		w.changed.Broadcast()
	}
}

// stopPart takes p out of work. With drain, what was acknowledged is still marked; without, nothing is written any more.
func (w *Worker) stopPart(p *part, drain bool) {
	if p.state == partStopped || (drain && p.state == partDraining) {
		return
	}
	p.state = partStopped
	if drain {
		p.state = partDraining
	}
	for _, l := range p.lanes {
		w.halt(l)
		w.endProbe(l)
	}
	w.markNow()
	if i := slices.Index(w.active, p.n); i >= 0 && w.parts[p.n] == p {
		w.setActive(slices.Concat(w.active[:i], w.active[i+1:]))
	}
	if len(w.active) > 0 { // else all partitions stop, and nobody would know better
		for _, l := range p.lanes {
			w.noteUnwanted(l.stream)
		}
	}
	w.changed.Broadcast()
}

// halt drops what l holds unsent. From now on the feed hands it nothing, so its cursor must not follow the horizon any further.
func (w *Worker) halt(l *lane) {
	if l.live {
		l.live, l.read = false, w.front
	}
	w.rewind(l)
	l.read = min(l.read, w.horizon)
}

// setActive replaces the list of partitions whose rows the feed asks for. Its elements never change: the feed uses it without the lock.
func (w *Worker) setActive(active []int) {
	w.active = active
	w.cfg.Metrics.owned.Set(float64(len(active)))
}
