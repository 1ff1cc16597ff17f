package load

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// outcome is what a producer knows of its transaction.
type outcome uint8

const (
	inDoubt outcome = iota
	committed
	rolledBack
)

// entry is what is known of an event.
type entry struct {
	outcome outcome
	over    time.Time // when its transaction was
	stored  time.Time // zero: not seen in a stream
}

// ledger is the producers' memory, and what the watch has seen.
type ledger struct {
	mu     sync.Mutex
	events map[uuid.UUID]entry
	open   map[uuid.UUID]time.Time // committed and not seen: when
	early  map[uuid.UUID]time.Time // seen before the producer had its answer
	counts [rolledBack + 1]int
}

func newLedger() *ledger {
	return &ledger{events: map[uuid.UUID]entry{}, open: map[uuid.UUID]time.Time{}, early: map[uuid.UUID]time.Time{}}
}

// note takes the outcome of a transaction.
func (l *ledger) note(o outcome, over time.Time, ids []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[o] += len(ids)
	for _, id := range ids {
		e := entry{outcome: o, over: over, stored: l.early[id]}
		delete(l.early, id)
		if o == committed && e.stored.IsZero() {
			l.open[id] = over
		}
		l.events[id] = e
	}
}

// see takes that an event was found in a stream.
func (l *ledger) see(id uuid.UUID, stored time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.events[id]
	switch {
	case !known:
		l.early[id] = stored
	case e.stored.IsZero():
		e.stored = stored
		l.events[id] = e
		delete(l.open, id)
	}
}

func (l *ledger) count(o outcome) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[o]
}

// unseen counts what was committed up to a time and has not been seen.
func (l *ledger) unseen(until time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, over := range l.open {
		if !over.After(until) {
			n++
		}
	}
	return n
}

func (l *ledger) longest(from, to, now time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.outcome != committed || e.over.Before(from) || e.over.After(to) {
			continue
		}
		stored := e.stored
		if stored.IsZero() {
			stored = now
		}
		longest = max(longest, stored.Sub(e.over))
	}
	return longest
}
