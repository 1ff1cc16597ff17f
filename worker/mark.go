package worker

import (
	"context"
	"time"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/store"
)

// markBatch are acknowledged events of a lane that wait for their mark.
type markBatch struct {
	lane     *lane
	epoch    int64
	ids      []string
	places   []store.Place
	low      int64 // the lowest seq among them
	failures int
	alone    bool // it has failed in a statement of its own, so nothing else is to blame
}

const (
	// markEvents is how many events one mark statement takes at most, beyond its first batch.
	markEvents = 2000

	// At low rates marks wait for each other, until there are markCompany events or the first has waited for markDelay: a statement for each
	// event would be a fifth of what an event costs. Nobody waits for a mark, but a lane that has nearly as many unmarked batches as it may, and a
	// partition that is handed over.
	markCompany = 100
	markDelay   = 50 * time.Millisecond
)

// queueMark hands m to the markers. What belongs to a lane whose marks fail waits for the marker that deals with those.
func (w *Worker) queueMark(m *markBatch) {
	m.lane.marking = append(m.lane.marking, m)
	m.lane.part.marking++
	if m.lane.marksFail {
		m.lane.held = append(m.lane.held, m)
		return
	}
	if len(w.marks) == 0 {
		time.AfterFunc(markDelay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.markNow()
		})
	}
	w.marks = append(w.marks, m)
	w.marksEvents += len(m.ids)
	if w.marksEvents >= markCompany || len(m.lane.marking) >= markingMax/2 || m.lane.part.state != partActive {
		w.markNow()
	}
}

// markNow has the markers take what waits.
func (w *Worker) markNow() {
	w.marksDue = true
	w.markWake.Broadcast()
}

// marker marks what the streams acknowledged, as much as waits in one statement, until ctx ends.
func (w *Worker) marker(ctx context.Context) {
	for {
		batches := w.nextMarks(ctx)
		if batches == nil {
			return
		}
		fenced, began, err := w.mark(ctx, batches)
		w.endMarks(batches, fenced, err, began, false)
	}
}

// failingMarker tries marks that have failed again, until ctx ends: one batch at a time, of each lane in turn. So a lane whose rows somebody has
// locked, or that cannot be marked for another reason, takes time from other such lanes at most.
func (w *Worker) failingMarker(ctx context.Context) {
	for {
		m := w.nextHeld(ctx)
		if m == nil {
			return
		}
		batches := []*markBatch{m}
		fenced, began, err := w.mark(ctx, batches)
		w.endMarks(batches, fenced, err, began, true)
	}
}

func (w *Worker) mark(ctx context.Context, batches []*markBatch) (fenced []store.Lane, began time.Time, err error) {
	marks := make([]store.Mark, len(batches))
	events := 0
	for i, m := range batches {
		marks[i] = store.Mark{Lane: m.lane.id, Epoch: m.epoch, IDs: m.ids, Places: m.places}
		events += len(m.ids)
	}
	began = time.Now()
	crash.At(crash.Marking)
	fenced, err = w.cfg.Database.Mark(ctx, marks)
	crash.At(crash.Marked)
	if err == nil {
		w.cfg.Metrics.markSeconds.Observe(time.Since(began).Seconds())
		w.cfg.Metrics.markEvents.Observe(float64(events))
	}
	return fenced, began, err
}

// nextMarks waits for batches.
func (w *Worker) nextMarks(ctx context.Context) []*markBatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for (len(w.marks) == 0 || !w.marksDue) && ctx.Err() == nil {
		w.markWake.Wait()
	}
	if ctx.Err() != nil {
		return nil
	}
	n, events := 0, 0
	for n < len(w.marks) && (n == 0 || events+len(w.marks[n].ids) <= markEvents) {
		events += len(w.marks[n].ids)
		n++
	}
	batches := w.marks[:n:n]
	w.marks = w.marks[n:]
	w.marksEvents -= events
	w.marksDue = len(w.marks) > 0
	return batches
}

// nextHeld waits for a lane whose marks have failed, and whose time has come.
func (w *Worker) nextHeld(ctx context.Context) *markBatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ctx.Err() == nil {
		if len(w.failingLanes) == 0 {
			w.markWake.Wait()
			continue
		}
		l := w.failingLanes[0]
		w.failingLanes = w.failingLanes[1:]
		if l.part.state == partStopped {
			for _, m := range l.held {
				w.dropMark(m)
			}
			l.held = nil
		}
		if len(l.held) > 0 {
			m := l.held[0]
			l.held = l.held[1:]
			return m
		}
		l.marksFail = false
	}
	return nil
}

// endMarks takes the outcome of a statement; again says that it was another try.
func (w *Worker) endMarks(batches []*markBatch, fenced []store.Lane, err error, began time.Time, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.databaseFailed("mark", err)
		for _, m := range batches {
			if m.lane.part.state == partStopped {
				w.dropMark(m)
				if again {
					w.failingLanes = append(w.failingLanes, m.lane) // for the rest of it
				}
				continue
			}
			m.failures++
			m.alone = m.alone || len(batches) == 1
			if m.failures > 1 {
				w.setState(m.lane, "mark_failing", err.Error())
			}
			w.hold(m, again)
		}
		return
	}
	lost := make(map[store.Lane]bool, len(fenced))
	for _, lane := range fenced {
		lost[lane] = true
	}
	for _, m := range batches {
		w.dropMark(m)
		p := m.lane.part
		if again {
			w.unhold(m.lane)
		}
		if lost[m.lane.id] {
			w.fence(p)
			continue
		}
		if p.verified.Before(began) {
			p.verified = began
		}
		if !m.lane.marksFail && m.lane.state.reason == "mark_failing" {
			w.setState(m.lane, "", "")
		}
		w.kick(m.lane)
	}
}

// hold has m tried again later, by the marker for that.
func (w *Worker) hold(m *markBatch, again bool) {
	l := m.lane
	l.held = append(l.held, m)
	if l.marksFail && !again {
		return // its lane's next try is set already
	}
	l.marksFail = true
	time.AfterFunc(retryDelay(m.failures), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failingLanes = append(w.failingLanes, l)
		w.markWake.Broadcast()
	})
}

// unhold goes on after one of l's marks has worked in the end: what has not failed by itself goes with the others' marks again.
func (w *Worker) unhold(l *lane) {
	held := l.held
	l.held = nil
	for _, m := range held {
		if m.alone {
			l.held = append(l.held, m)
		} else {
			w.marks = append(w.marks, m)
			w.marksEvents += len(m.ids)
		}
	}
	if l.marksFail = len(l.held) > 0; l.marksFail {
		w.failingLanes = append(w.failingLanes, l)
	}
	w.markNow()
}

// dropMark ends m's wait.
func (w *Worker) dropMark(m *markBatch) {
	for i, other := range m.lane.marking {
		if other == m {
			m.lane.marking = append(m.lane.marking[:i], m.lane.marking[i+1:]...)
			break
		}
	}
	m.lane.part.marking--
	w.noteQuiet(m.lane.part)
}
