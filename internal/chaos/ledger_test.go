package chaos

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// world is what a check compares.
type world struct {
	ledger *ledger
	rows   map[uuid.UUID]row
	stored map[uuid.UUID]place
	ids    []uuid.UUID
}

// whole is a world without faults: one producer's four events in one lane, the last of them a dead letter that was poisoned, and one that was
// rolled back.
func whole() *world {
	w := &world{ledger: newLedger(), rows: map[uuid.UUID]row{}, stored: map[uuid.UUID]place{}}
	for range 5 {
		w.ids = append(w.ids, uuid.New())
	}
	poisoned := map[uuid.UUID]bool{w.ids[3]: true}
	w.ledger.note(0, committed, w.ids[:2], nil)
	w.ledger.note(0, committed, w.ids[2:4], poisoned)
	w.ledger.note(0, rolledBack, w.ids[4:], nil)
	for i, id := range w.ids[:4] {
		w.rows[id] = row{}
		w.stored[id] = place{"S", uint64(i + 1), 0}
	}
	w.rows[w.ids[3]] = row{dead: true, ever: true, attempts: 3}
	delete(w.stored, w.ids[3])
	return w
}

func (w *world) faults() string {
	f := newFindings()
	w.ledger.compare(w.rows, w.stored, f)
	w.ledger.compareOrder(w.rows, w.stored, f)
	return strings.Join(f.list(), "\n")
}

func TestAWholeWorldHasNoFaults(t *testing.T) { require.Empty(t, whole().faults()) }

func TestEachFaultIsFound(t *testing.T) {
	for want, spoil := range map[string]func(*world){
		"rolled back, and exist":                    func(w *world) { w.stored[w.ids[4]] = place{"S", 9, 0} },
		"1 events that were rolled back, and exist": func(w *world) { w.rows[w.ids[4]] = row{} },
		"committed, and are not in the table":       func(w *world) { delete(w.rows, w.ids[0]); delete(w.stored, w.ids[0]) },
		"stored, and not in the table":              func(w *world) { w.ledger.note(1, inDoubt, w.ids[:1], nil); delete(w.rows, w.ids[0]) },
		"nowhere":                                   func(w *world) { delete(w.stored, w.ids[1]) },
		"dead letters that are stored":              func(w *world) { w.stored[w.ids[3]] = place{"S", 9, 0} },
		"dead letters that were not poisoned":       func(w *world) { w.rows[w.ids[1]] = row{dead: true, ever: true}; delete(w.stored, w.ids[1]) },
		"attempts that were counted although nothing is wrong with the event": func(w *world) { w.rows[w.ids[1]] = row{attempts: 1} },
		"rows that nobody inserted":          func(w *world) { w.rows[uuid.New()] = row{dead: true} },
		"messages that nobody inserted":      func(w *world) { w.stored[uuid.New()] = place{"S", 9, 0} },
		"out of the order of their producer": func(w *world) { w.stored[w.ids[0]] = place{"S", 9, 0} },
	} {
		w := whole()
		spoil(w)
		require.Contains(t, w.faults(), want)
	}
}

func TestOrderIsNotJudgedWhereThereIsNone(t *testing.T) {
	for what, change := range map[string]func(*world){
		"another lane":   func(w *world) { w.stored[w.ids[0]] = place{"S", 9, 1} },
		"another stream": func(w *world) { w.stored[w.ids[0]] = place{"T", 9, 0} },
		"a retried dead letter": func(w *world) {
			w.stored[w.ids[0]] = place{"S", 9, 0}
			w.ledger.note(0, committed, w.ids[:1], map[uuid.UUID]bool{w.ids[0]: true})
			w.rows[w.ids[0]] = row{ever: true}
		},
		"a parked event":         func(w *world) { w.stored[w.ids[0]] = place{"S", 9, 0}; w.rows[w.ids[0]] = row{everParked: true} },
		"a transaction in doubt": func(w *world) { w.stored[w.ids[0]] = place{"S", 9, 0}; w.ledger.note(0, inDoubt, w.ids[:1], nil) },
		"overlapping transactions": func(w *world) {
			w.stored[w.ids[0]] = place{"S", 9, 0}
			w.ledger.note(stranger, committed, w.ids[:1], nil)
		},
	} {
		w := whole()
		change(w)
		require.Empty(t, w.faults(), what)
	}
}
