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
	low      int64 // the lowest seq among them
	failures int
}

// markEvents is how many events one mark statement takes at most, beyond its first batch.
const markEvents = 2000

// queueMark hands m to the markers.
func (w *Worker) queueMark(m *markBatch) {
	m.lane.marking = append(m.lane.marking, m)
	m.lane.part.marking++
	w.marks = append(w.marks, m)
	w.markWake.Signal()
}

// marker marks what the streams acknowledged, as much as waits in one statement, until ctx ends.
func (w *Worker) marker(ctx context.Context) {
	for {
		batches := w.nextMarks(ctx)
		if batches == nil {
			return
		}
		marks := make([]store.Mark, len(batches))
		events := 0
		for i, m := range batches {
			marks[i] = store.Mark{Lane: m.lane.id, Epoch: m.epoch, IDs: m.ids}
			events += len(m.ids)
		}
		began := time.Now()
		crash.At(crash.Marking)
		fenced, err := w.cfg.Database.Mark(ctx, marks)
		crash.At(crash.Marked)
		if err == nil {
			w.cfg.Metrics.markSeconds.Observe(time.Since(began).Seconds())
			w.cfg.Metrics.markEvents.Observe(float64(events))
		}
		w.endMarks(batches, fenced, err, began)
	}
}

// nextMarks waits for batches. One that has failed goes alone, so that it cannot hold others back.
func (w *Worker) nextMarks(ctx context.Context) []*markBatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.marks) == 0 && ctx.Err() == nil {
		w.markWake.Wait()
	}
	if ctx.Err() != nil {
		return nil
	}
	n, events := 0, 0
	for n < len(w.marks) && (n == 0 || events+len(w.marks[n].ids) <= markEvents) {
		if w.marks[n].failures > 0 && n > 0 {
			break
		}
		events += len(w.marks[n].ids)
		n++
		if w.marks[n-1].failures > 0 {
			break
		}
	}
	batches := w.marks[:n:n]
	w.marks = w.marks[n:]
	return batches
}

func (w *Worker) endMarks(batches []*markBatch, fenced []store.Lane, err error, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.databaseFailed("mark", err)
		for _, m := range batches {
			m.failures++
			if m.lane.part.state == partStopped {
				w.dropMark(m)
				continue
			}
			if m.failures > 1 {
				w.setState(m.lane, "mark_failing", err.Error())
			}
			time.AfterFunc(retryDelay(m.failures), func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.marks = append(w.marks, m)
				w.markWake.Signal()
			})
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
		if lost[m.lane.id] {
			w.fence(p)
			continue
		}
		if p.verified.Before(began) {
			p.verified = began
		}
		if m.lane.state.reason == "mark_failing" {
			w.setState(m.lane, "", "")
		}
		w.kick(m.lane)
	}
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
