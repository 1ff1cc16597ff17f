package chaos

import (
	"sync"

	"github.com/google/uuid"
)

// outcome is what a producer knows of its transaction.
type outcome uint8

const (
	// inDoubt: the connection ended between COMMIT and its answer.
	inDoubt outcome = iota
	committed
	rolledBack
)

// entry is what the ledger knows of an event.
type entry struct {
	outcome  outcome
	poisoned bool
	// producer has its transactions one after another; turn numbers its events in that order, from 1. 0: not known to follow or precede any other.
	producer, turn uint32
}

// ledger is the producers' own memory. Any goroutine may write to it.
type ledger struct {
	mu     sync.Mutex
	events map[uuid.UUID]entry
	turns  map[uint32]uint32
	counts [rolledBack + 1]int64
}

func newLedger() *ledger {
	return &ledger{events: map[uuid.UUID]entry{}, turns: map[uint32]uint32{}}
}

// note takes the outcome of a transaction. The ids are in the order of insertion; poisoned ones can be stored by no stream as they are.
func (l *ledger) note(producer uint32, o outcome, ids []uuid.UUID, poisoned map[uuid.UUID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		e := entry{outcome: o, poisoned: poisoned[id], producer: producer}
		if o == committed {
			l.turns[producer]++
			e.turn = l.turns[producer]
		}
		l.events[id] = e
		l.counts[o]++
	}
}

// count is how many events have an outcome.
func (l *ledger) count(o outcome) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[o]
}
