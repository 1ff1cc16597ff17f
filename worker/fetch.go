package worker

import (
	"context"
	"slices"
	"time"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/store"
)

// fetcher reads rows for lanes that are not live, one lane at a time, until ctx ends.
func (w *Worker) fetcher(ctx context.Context) {
	for {
		w.mu.Lock()
		for len(w.fetchQueue) == 0 && ctx.Err() == nil {
			w.fetchWake.Wait()
		}
		if ctx.Err() != nil {
			w.mu.Unlock()
			return
		}
		l := w.fetchQueue[0]
		w.fetchQueue = w.fetchQueue[1:]
		after, upto, late := l.read, w.upto(l), l.takeLate()
		if len(l.late) > 0 {
			upto = after // the rest of them first
		}
		l.fetchLate = late
		limit, size := w.fetchLimit(l), l.reserved
		id, active := l.id, l.part.state == partActive
		w.mu.Unlock()

		var events []store.Event
		var more bool
		var err error
		began := time.Now()
		if active {
			events, more, err = w.cfg.Database.Fetch(ctx, id, after, upto, late, limit, int(size))
		}
		if len(events) > 0 {
			crash.At(crash.Fetched)
		}
		w.endFetch(l, events, upto, more, err, began)
	}
}

// lateMax is how many late numbers one fetch asks for at most.
const lateMax = 2000

// takeLate takes the lowest late numbers, as many as one fetch may ask for.
func (l *lane) takeLate() []int64 {
	late := l.late
	if l.late = nil; len(late) > lateMax {
		slices.Sort(late)
		late = slices.Compact(late)
		n := min(len(late), lateMax)
		late, l.late = late[:n:n], late[n:]
	}
	return late
}

func (w *Worker) endFetch(l *lane, events []store.Event, upto int64, more bool, err error, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.fetching = false
	if err != nil || l.void || l.part.state != partActive {
		w.budget.give(l.reserved)
		if !l.void {
			l.late = append(l.late, l.fetchLate...)
		}
		l.void, l.reserved, l.fetchLate, l.racing = false, 0, nil, nil
		if err != nil && l.part.state == partActive {
			l.failures++
			w.databaseFailed("fetch", err)
			w.setState(l, "fetch_failing", err.Error())
			w.retryLater(l, retryDelay(l.failures))
		}
		w.settleBusy(l.part)
		w.kick(l)
		w.endProbe(l)
		w.feedHungry()
		return
	}
	w.fetched(l, events, upto, more)
	w.cfg.Metrics.fetchSeconds.Observe(time.Since(began).Seconds())
	w.cfg.Metrics.fetchEvents.Observe(float64(len(events)))
	if l.state.reason == "fetch_failing" {
		l.failures = 0
		w.setState(l, "", "")
	}
	if s := l.stream; s.down && s.probe != l {
		w.rewind(l)
	}
	w.noteEmpty(l)
	w.settleBusy(l.part)
	w.kick(l)
	w.endProbe(l)
	w.feedHungry()
}
