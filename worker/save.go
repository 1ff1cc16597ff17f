package worker

import (
	"context"
	"time"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/store"
)

// saveInterval is the time between two saves of cursors: they only shorten a restart.
const saveInterval = time.Second

// saver saves the horizon, the cursors and the lanes' states once a second where they have changed, and checks the epochs, until ctx ends.
func (w *Worker) saver(ctx context.Context) {
	for ctx.Err() == nil {
		w.wait(ctx, saveInterval)
		if ctx.Err() != nil {
			return
		}
		w.saveCursors(ctx, nil)
		w.saveStates(ctx)
		if err := w.checkEpochs(ctx); err != nil {
			w.databaseFailedLocked("check_epochs", err)
		}
	}
}

// savePartition saves what is left to save of a drained partition.
func (w *Worker) savePartition(ctx context.Context, p *part) {
	w.saveCursors(ctx, p)
	w.saveStates(ctx)
}

// saveCursors saves the horizon and then the cursors, of only or of every partition that is worked on. The horizon first: no saved cursor is
// ever above the saved horizon.
func (w *Worker) saveCursors(ctx context.Context, only *part) {
	w.mu.Lock()
	horizon, moved := w.horizon, w.horizon != w.savedHorizon
	var saves []store.CursorSave
	var lanes []*lane
	collect := func(p *part) {
		for _, l := range p.lanes {
			if c := w.cursor(l); c > l.saved {
				saves = append(saves, store.CursorSave{Lane: l.id, Epoch: p.epoch, Cursor: c, StreamSeq: l.streamSeq})
				lanes = append(lanes, l)
			}
		}
	}
	if only != nil {
		collect(only)
	} else {
		for _, p := range w.parts {
			if p.state == partActive {
				collect(p)
			}
		}
	}
	w.mu.Unlock()
	if moved {
		if err := w.cfg.Database.SaveHorizon(ctx, horizon); err != nil {
			w.databaseFailedLocked("save_horizon", err)
			return
		}
		crash.At(crash.HorizonSaved)
	}
	var fenced []int
	if len(saves) > 0 {
		var err error
		if fenced, err = w.cfg.Database.SaveCursors(ctx, saves); err != nil {
			w.databaseFailedLocked("save_cursors", err)
			return
		}
		crash.At(crash.CursorsSaved)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if moved {
		w.savedHorizon = horizon
	}
	for i, l := range lanes {
		l.saved = max(l.saved, saves[i].Cursor)
	}
	for _, n := range fenced {
		for _, l := range lanes {
			if l.part.n == n {
				w.fence(l.part)
				break
			}
		}
	}
}

// setState notes why l does not flow; an empty reason says that it does.
func (w *Worker) setState(l *lane, reason, detail string) {
	if l.state.reason == reason {
		l.state.detail = detail
		return
	}
	if reason != "" && !l.stream.down {
		w.log.Warn("lane waits", "stream", l.id.Stream, "partition", l.id.Partition, "reason", reason, "detail", detail)
	} else if reason == "" && !l.stream.down {
		w.log.Info("lane flows again", "stream", l.id.Stream, "partition", l.id.Partition, "reason", l.state.reason,
			"waited", time.Since(l.state.since).Round(time.Millisecond).String())
	}
	l.state.reason, l.state.detail, l.state.since = reason, detail, time.Now()
	w.changedLanes[l] = struct{}{}
}

// saveStates writes the states that have changed, for people to see.
func (w *Worker) saveStates(ctx context.Context) {
	w.mu.Lock()
	changed := w.changedLanes
	w.changedLanes = make(map[*lane]struct{})
	states := make([]store.LaneState, 0, len(changed))
	for l := range changed {
		if l.state.reason == l.state.reported {
			continue
		}
		l.state.reported = l.state.reason
		states = append(states, store.LaneState{Lane: l.id, Member: w.member, Epoch: l.part.epoch, Reason: l.state.reason, Detail: l.state.detail,
			Since: l.state.since})
	}
	w.mu.Unlock()
	if len(states) == 0 {
		return
	}
	if err := w.cfg.Database.SaveLaneStates(ctx, states); err != nil {
		w.databaseFailedLocked("save_states", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		for l := range changed {
			l.state.reported = "?"
			w.changedLanes[l] = struct{}{}
		}
	}
}
