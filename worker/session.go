package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outlane/outlane/internal/crash"
)

// session is what the feed compares each look with.
type session struct {
	started    time.Time // of the server
	generation int64     // of the cursors
	listens    bool      // a notification ends the sleep
	breaks     int       // how often the listening connection had been lost
}

// sessions runs one session after another until ctx ends. A session is the time in which the database is one and the same server and its
// sequence only goes forward; what a worker knows of numbers and transactions holds within one. A connection that was lost ends it too: a
// server that has recovered from the crash of one of its processes keeps its start time, and may give numbers again that nobody committed.
func (w *Worker) sessions(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		begin, err := w.openSession(ctx)
		if err == nil {
			failures = 0
			err = w.feed(ctx, begin)
		}
		w.closeSession(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errMoved):
			w.log.Warn("starting over from the saved cursors", "reason", err)
		default:
			w.databaseFailedLocked("open", err)
			w.wait(ctx, retryDelay(failures))
		}
	}
}

// openSession reads where to begin. A sequence that is behind what was saved of it (a restore, TRUNCATE … RESTART IDENTITY) sets the
// cursors back: rows are looked at again rather than skipped.
func (w *Worker) openSession(ctx context.Context) (session, error) {
	meta, err := w.cfg.Database.Meta(ctx)
	if err != nil {
		return session{}, err
	}
	p, err := w.cfg.Database.Poll(ctx)
	if err != nil {
		return session{}, err
	}
	horizon, err := w.cfg.Database.Horizon(ctx)
	if err != nil {
		return session{}, err
	}
	last := p.LastSeq
	if last < horizon { // which another worker may have saved since the poll
		again, err := w.cfg.Database.Poll(ctx)
		if err != nil {
			return session{}, err
		}
		p.Backwards, last = p.Backwards || again.Backwards, again.LastSeq
	}
	if p.Backwards || last < horizon {
		w.log.Error("the sequence outbox_events_seq went backwards: every cursor above it is set back and its rows are looked at again",
			"last", last, "seen", horizon)
		if err := w.cfg.Database.SequenceReset(ctx, last); err != nil {
			return session{}, fmt.Errorf("set cursors back: %w", err)
		}
		crash.At(crash.SequenceReset)
		return session{}, fmt.Errorf("%w: its cursors were set back", errMoved)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracker = &tracker{front: horizon, cached: meta.SequenceCache > 1}
	w.front, w.horizon, w.horizonMoved = horizon, horizon, time.Now()
	w.inSession = true
	w.changed.Broadcast()
	return session{started: p.Started, generation: p.Generation, listens: meta.Sessions, breaks: w.breaks}, nil
}

// closeSession drains all partitions, so that what was acknowledged is marked before it is read again; they are claimed anew in the next
// session. When ctx has ended it leaves them to the handover.
func (w *Worker) closeSession(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inSession = false
	for ctx.Err() == nil {
		quiet := true
		for _, p := range w.parts {
			w.stopPart(p, true)
			if p.quiet() {
				w.forget(p)
			} else {
				quiet = false
			}
		}
		if quiet {
			return
		}
		w.changed.Wait()
	}
}
