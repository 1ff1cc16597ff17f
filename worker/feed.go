package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outlane/outlane/store"
)

const (
	arrivalsSpan = 1000    // new numbers up to which the feed reads the rows themselves
	missingSpan  = 200_000 // and beyond, how many numbers one look covers
	pollRamp     = 50      // looks without news after which the pace slows down
	gapPoll      = 50 * time.Millisecond
)

// errMoved ends a session: the database is another one, or its sequence went backwards.
var errMoved = errors.New("database has moved")

// feed follows the sequence for one session: it looks at new numbers, hands their rows to live lanes, and lets the others know that there is
// more. It returns when the session ends: with errMoved, or when ctx does.
func (w *Worker) feed(ctx context.Context, begin session) error {
	quiet, failures := 0, 0
	lastNews := time.Now()
	idle := false
	var raised time.Time
	defer func() {
		if idle {
			_ = w.cfg.Database.SetIdle(context.WithoutCancel(ctx), false)
		}
	}()
	for ctx.Err() == nil {
		p, err := w.cfg.Database.Poll(ctx)
		if err == nil && p.ReadOnly {
			w.cfg.Database.Reset()
			err = store.ErrReadOnly
		}
		var news bool
		if err == nil {
			switch {
			case !p.Started.Equal(begin.started):
				return fmt.Errorf("%w: the server was started at %s, not %s", errMoved, p.Started.Format(time.RFC3339), begin.started.Format(time.RFC3339))
			case p.Generation != begin.generation:
				return fmt.Errorf("%w: its cursors were set back", errMoved)
			case failures > 0, w.listenerBroke(begin):
				return fmt.Errorf("%w: a connection was lost", errMoved)
			case w.backwards(p):
				return fmt.Errorf("%w: its sequence went backwards", errMoved)
			}
			news, err = w.round(ctx, p)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failures++
			w.databaseFailedLocked("poll", err)
			w.wait(ctx, retryDelay(failures))
			continue
		}
		failures = 0
		w.databaseWorks()
		if news {
			quiet, lastNews = 0, time.Now()
			if idle {
				idle, raised = false, time.Time{}
				if err := w.cfg.Database.SetIdle(ctx, false); err != nil {
					w.databaseFailedLocked("wake", err)
				}
			}
			w.wait(ctx, w.cfg.PollInterval)
			continue
		}
		quiet++
		if time.Since(lastNews) < w.cfg.IdleAfter {
			w.wait(ctx, w.pace(quiet))
			continue
		}
		if !w.cfg.PollOnly && time.Since(raised) > w.slowPoll(begin) {
			// The mark is raised first and the sequence read again after it: an insert takes its number first and reads the mark after it.
			// It is raised again at each slow poll, since a worker that stops lowers it.
			if err := w.cfg.Database.SetIdle(ctx, true); err != nil {
				w.databaseFailedLocked("sleep", err)
				w.wait(ctx, w.slowPoll(begin))
				continue
			}
			if raised = time.Now(); !idle {
				idle = true
				continue
			}
		}
		w.sleep(ctx, begin)
	}
	return ctx.Err()
}

// pace is the time between two looks: the poll interval while there is news, up to eight times it after a while without.
func (w *Worker) pace(quiet int) time.Duration {
	switch {
	case quiet < pollRamp:
		return w.cfg.PollInterval
	case quiet < 2*pollRamp:
		return 2 * w.cfg.PollInterval
	}
	return 5 * w.cfg.PollInterval
}

// sleep waits for a notification, or for the slow poll. While a number may still appear that no insert will announce, it is a short one.
func (w *Worker) sleep(ctx context.Context, begin session) {
	d := w.slowPoll(begin)
	w.mu.Lock()
	if w.tracker.waiting() > 0 {
		d = min(d, gapPoll)
	}
	w.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-w.wake:
	}
}

// slowPoll is the time between two looks while the worker sleeps.
func (w *Worker) slowPoll(begin session) time.Duration {
	switch {
	case w.cfg.SlowPoll != 0:
		return w.cfg.SlowPoll
	case begin.listens && !w.cfg.PollOnly:
		return time.Second
	}
	return 200 * time.Millisecond
}

// wait sleeps for d or until ctx ends.
func (w *Worker) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// listenerBroke says whether the listening connection was lost in this session.
func (w *Worker) listenerBroke(begin session) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breaks != begin.breaks
}

// backwards says whether the sequence is behind what was seen of it.
func (w *Worker) backwards(p store.Poll) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.Backwards || p.LastSeq < w.tracker.front
}

// round looks once at what is new. news says whether anything was.
func (w *Worker) round(ctx context.Context, p store.Poll) (news bool, err error) {
	w.mu.Lock()
	l := w.tracker.plan(p, missingSpan)
	asked := w.active
	if l.empty() {
		defer w.mu.Unlock()
		w.advance()
		return false, nil
	}
	w.mu.Unlock()
	if l.to-l.from > arrivalsSpan {
		return w.largeRound(ctx, l)
	}
	var rows []store.Event
	for again := true; again; {
		if rows, err = w.cfg.Database.Arrivals(ctx, l.from, l.to, l.gaps, asked); err != nil {
			return false, err
		}
		w.mu.Lock()
		if again = w.activeBeyond(asked); again { // rows of a partition claimed meanwhile came as somebody else's
			asked = w.active
			w.mu.Unlock()
		}
	}
	defer w.mu.Unlock()
	seen := rows[:0]
	for _, e := range rows {
		if _, open := slices.BinarySearch(p.InProgress, e.Xact); !open {
			seen = append(seen, e)
		}
	}
	found := w.settle(l, numbersWithout(l.from, l.to, seen), seen)
	w.hand(l.from, seen)
	return l.to > l.from || found > 0, nil
}

// settle gives the round's outcome to the tracker, and says how many of the gaps were found.
func (w *Worker) settle(l look, missing []int64, rows []store.Event) int {
	var found []int64
	for _, e := range rows {
		if e.Seq <= l.from {
			found = append(found, e.Seq)
		}
	}
	w.tracker.done(l, missing, found)
	w.front = l.to
	w.advance()
	return len(found)
}

// largeRound looks at many new numbers at once: the lanes read the rows themselves. It sees the table later than the poll did, so every gap is
// asked for after that: a transaction's rows among the new numbers and those among the gaps become known together.
func (w *Worker) largeRound(ctx context.Context, l look) (bool, error) {
	missing, err := w.cfg.Database.Missing(ctx, l.from, l.to)
	if err != nil {
		return false, err
	}
	streams, err := w.cfg.Database.Streams(ctx)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	w.tracker.all(&l)
	asked := w.active
	w.mu.Unlock()
	var rows []store.Event
	for again := true; again; {
		if rows, err = w.cfg.Database.Arrivals(ctx, l.from, l.from, l.gaps, asked); err != nil {
			return false, err
		}
		w.mu.Lock()
		if again = w.activeBeyond(asked); again {
			asked = w.active
			w.mu.Unlock()
		}
	}
	defer w.mu.Unlock()
	w.settle(l, missing, rows)
	w.hand(l.from, rows)
	w.handOver(l.from, l.to, streams)
	return true, nil
}

// activeBeyond says whether a partition is active that was not asked for.
func (w *Worker) activeBeyond(asked []int) bool {
	for _, n := range w.active {
		if !slices.Contains(asked, n) {
			return true
		}
	}
	return false
}

// hand gives rows, ascending, to their lanes.
func (w *Worker) hand(from int64, rows []store.Event) {
	byLane := make(map[*lane][]store.Event)
	for _, e := range rows {
		if e.Partition < 0 {
			continue
		}
		p := w.parts[e.Partition]
		if p == nil || p.state != partActive {
			continue
		}
		l := w.laneOf(p, e.Stream)
		byLane[l] = append(byLane[l], e)
	}
	for l, events := range byLane {
		w.offer(l, from, events)
		if l.stream.down {
			w.setState(l, l.stream.reason, l.stream.detail)
		}
		w.kick(l)
	}
}

// handOver makes every lane read (from, to] itself.
func (w *Worker) handOver(from, to int64, streams []string) {
	for _, p := range w.parts {
		if p.state != partActive {
			continue
		}
		for _, name := range streams {
			w.laneOf(p, name)
		}
		for _, l := range p.lanes {
			if l.live {
				l.live, l.read = false, from
			}
			l.wanted = max(l.wanted, to)
			w.kick(l)
		}
	}
}

// advance takes over the tracker's horizon, which lanes with order "sequence" wait for.
func (w *Worker) advance() {
	h := w.tracker.horizon()
	if h == w.horizon {
		return
	}
	w.horizon, w.horizonMoved = h, time.Now()
	for _, p := range w.parts {
		for _, l := range p.lanes {
			if l.stream.order == OrderSequence {
				w.kick(l)
			}
		}
	}
}

// numbersWithout are the numbers of (from, to] that no row has.
func numbersWithout(from, to int64, rows []store.Event) []int64 {
	var missing []int64
	i := 0
	for seq := from + 1; seq <= to; seq++ {
		for i < len(rows) && rows[i].Seq < seq {
			i++
		}
		if i >= len(rows) || rows[i].Seq != seq {
			missing = append(missing, seq)
		}
	}
	return missing
}
