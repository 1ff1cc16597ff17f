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
	glanceGaps   = 200     // gaps up to which a poll brings rows along
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
	w.setFlows(true)
	defer func() {
		w.setFlows(false)
		if idle {
			_ = w.cfg.Database.SetIdle(context.WithoutCancel(ctx), false)
		}
	}()
	for ctx.Err() == nil {
		g, err := w.glance(ctx, quiet)
		var news bool
		if err == nil {
			if err := w.moved(begin, g.poll, failures > 0); err != nil {
				return err
			}
			news, err = w.round(ctx, begin, g)
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
			w.setFlows(true)
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
		w.setFlows(false)
		w.sleep(ctx, begin)
	}
	return ctx.Err()
}

// glance is a poll and, where news is likely, the rows that come with it in the same round trip.
type glance struct {
	poll   store.Poll
	rows   []store.Event // those of (from, from+arrivalsSpan] and of gaps, at least as new as the poll
	with   bool          // rows were asked for
	from   int64
	gaps   []int64
	active []int // the partitions that they were asked for
	claims int   // Worker.claims then
}

func (w *Worker) glance(ctx context.Context, quiet int) (g glance, err error) {
	w.mu.Lock()
	if g.with = quiet < pollRamp && w.tracker.waiting() <= glanceGaps; g.with {
		g.from, g.gaps, g.active, g.claims = w.tracker.front, w.tracker.unseenNumbers(), w.active, w.claims
	}
	w.mu.Unlock()
	if !g.with {
		g.poll, err = w.poll(ctx)
		return g, err
	}
	g.poll, g.rows, g.with, err = w.cfg.Database.PollArrivals(ctx, g.from, g.from+arrivalsSpan, g.gaps, g.active)
	return g, w.writable(g.poll, err)
}

func (w *Worker) poll(ctx context.Context) (store.Poll, error) {
	p, err := w.cfg.Database.Poll(ctx)
	return p, w.writable(p, err)
}

// writable turns a poll of a server that takes no writes into an error.
func (w *Worker) writable(p store.Poll, err error) error {
	if err == nil && p.ReadOnly {
		w.cfg.Database.Reset()
		return store.ErrReadOnly
	}
	return err
}

// moved says, with errMoved, that the session is over.
func (w *Worker) moved(begin session, p store.Poll, failed bool) error {
	switch {
	case !p.Started.Equal(begin.started):
		return fmt.Errorf("%w: the server was started, or recovered from a crash, at %s, not %s", errMoved, p.Started.Format(time.RFC3339), begin.started.Format(time.RFC3339))
	case p.Generation != begin.generation:
		return fmt.Errorf("%w: its cursors were set back", errMoved)
	case failed, w.listenerBroke(begin):
		return fmt.Errorf("%w: a connection was lost", errMoved)
	case w.backwards(p):
		return fmt.Errorf("%w: its sequence went backwards", errMoved)
	}
	return nil
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
func (w *Worker) round(ctx context.Context, begin session, g glance) (news bool, err error) {
	w.mu.Lock()
	l := w.tracker.plan(g.poll, missingSpan)
	if l.empty() {
		defer w.mu.Unlock()
		w.advance()
		return false, nil
	}
	w.mu.Unlock()
	if l.to-l.from > arrivalsSpan {
		return true, w.largeRound(ctx, begin, l)
	}
	many := false
	rows, ok := w.glanced(l, g)
	if !ok {
		if many, err = w.gaps(ctx, &l, arrivalsSpan); err != nil {
			return false, err
		}
		if rows, err = w.arrivals(ctx, l, l.to, l.gaps); err != nil {
			return false, err
		}
	}
	defer w.mu.Unlock()
	found := numbers(rows, l.from)
	w.tracker.done(l, numbersWithout(l.from, l.to, rows), found)
	w.front = l.to
	w.advance()
	w.hand(l.from, rows)
	return l.to > l.from || len(found) > 0 || many, nil
}

// largeRound looks at many new numbers at once: the lanes read the rows themselves. That sees the table later than the poll did, so there is
// another poll after it for the gaps: what a transaction has brought among them is known before what it has brought among the new numbers.
func (w *Worker) largeRound(ctx context.Context, begin session, l look) error {
	missing, err := w.cfg.Database.Missing(ctx, l.from, l.to)
	if err != nil {
		return err
	}
	streams, err := w.cfg.Database.Streams(ctx)
	if err != nil {
		return err
	}
	later := look{from: l.from, to: l.from}
	if later.poll, err = w.poll(ctx); err != nil {
		return err
	}
	if err := w.moved(begin, later.poll, false); err != nil {
		return err
	}
	w.mu.Lock()
	w.tracker.probe(&later)
	w.mu.Unlock()
	if _, err := w.gaps(ctx, &later, 0); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracker.done(later, nil, nil)
	l.probed = nil
	w.tracker.done(l, missing, nil)
	w.front = l.to
	w.advance()
	w.handOver(l.from, l.to, streams)
	return nil
}

// gaps asks for l.gaps, the lowest first and not too many at once, until so many are left in it, and hands what is there to the lanes. All is
// taken as l's snapshot shows it. A transaction that inserted a million events leaves a million gaps until it ends.
func (w *Worker) gaps(ctx context.Context, l *look, left int) (found bool, err error) {
	for len(l.gaps) > left {
		n := min(len(l.gaps), arrivalsSpan)
		rows, err := w.arrivals(ctx, *l, l.from, l.gaps[:n])
		if err != nil {
			return false, err
		}
		found = found || len(rows) > 0
		w.tracker.seen(*l, numbers(rows, l.from))
		w.hand(l.from, rows)
		w.mu.Unlock()
		l.gaps = l.gaps[n:]
	}
	return found, nil
}

// arrivals brings the rows of (l.from, to] and of gaps that l's snapshot shows, in seq order. If there is no error, it has taken the lock: no
// partition has become active since the rows were read.
func (w *Worker) arrivals(ctx context.Context, l look, to int64, gaps []int64) ([]store.Event, error) {
	w.mu.Lock()
	asked, claims := w.active, w.claims
	w.mu.Unlock()
	for {
		rows, err := w.cfg.Database.Arrivals(ctx, l.from, to, gaps, asked)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		if w.claims == claims {
			return slices.DeleteFunc(rows, func(e store.Event) bool { return l.poll.Open(e.Xact) }), nil
		}
		// Rows of a partition claimed meanwhile came as somebody else's, or as they were before somebody else had it.
		asked, claims = w.active, w.claims
		w.mu.Unlock()
	}
}

// glanced brings what arrivals would, out of what came with the poll. If ok, it has taken the lock, as arrivals does.
func (w *Worker) glanced(l look, g glance) (rows []store.Event, ok bool) {
	if !g.with {
		return nil, false
	}
	w.mu.Lock()
	if w.claims != g.claims {
		w.mu.Unlock()
		return nil, false
	}
	return slices.DeleteFunc(g.rows, func(e store.Event) bool {
		asked := e.Seq > l.from && e.Seq <= l.to
		if !asked {
			_, asked = slices.BinarySearch(l.gaps, e.Seq)
		}
		return !asked || l.poll.Open(e.Xact)
	}), true
}

// numbers are those of rows at or under upto.
func numbers(rows []store.Event, upto int64) []int64 {
	var list []int64
	for _, e := range rows {
		if e.Seq <= upto {
			list = append(list, e.Seq)
		}
	}
	return list
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
