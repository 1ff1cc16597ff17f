package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/verify"
	"github.com/outlane/outlane/store"
)

// result is what came of it.
type result struct {
	report  verify.Report
	load    *load
	faults  *faults
	opts    Options
	unclean error // of workers that did not end as told

	letters     []string // events in the dead-letter list
	reason      string   // of the first
	rate, best  float64  // events per second
	quiet, all  []time.Duration
	takeover    time.Duration // to the first event that another worker stored of the victim's partitions
	tookOver    bool
	allTakeover time.Duration // to the claim of the last of its partitions
}

// judge checks every event, as `outlane verify` does, and measures.
func (d *demo) judge(ctx context.Context) (*result, error) {
	d.show.say("checking every event, as outlane verify does")
	s, err := store.Open(store.Config{URL: d.box.DatabaseURL, ApplicationName: "outlane demo"})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	defer s.Close()
	r := &result{load: d.load, faults: &d.faults, opts: d.opts}
	m := measure{result: r, perSecond: map[int64]int{}}
	r.report, err = verify.Run(ctx, verify.Options{
		Store: s, JetStream: d.box.JetStream, Complete: true, OnMessage: m.take,
		Progress: func(p verify.Progress) {
			d.show.status(fmt.Sprintf("%s: %s of %s", p.Step, count(p.Done), count(p.Total)))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("check the events: %w", err)
	}
	m.finish()
	entries, err := s.ListDeadLetters(ctx, store.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("list the dead letters: %w", err)
	}
	for _, e := range entries {
		r.letters = append(r.letters, e.EventID)
		if r.reason == "" {
			r.reason = e.Reason
		}
	}
	return r, nil
}

// measure takes figures from the messages while they are checked.
type measure struct {
	*result
	perSecond   map[int64]int
	first, last time.Time
}

func (m *measure) take(msg history.Message) {
	at := msg.Time
	if m.first.IsZero() || at.Before(m.first) {
		m.first = at
	}
	if at.After(m.last) {
		m.last = at
	}
	m.perSecond[at.Unix()]++
	if claimed, ok := m.faults.partitions[msg.Partition]; ok && at.After(claimed) {
		if d := at.Sub(m.faults.killedAt); !m.tookOver || d < m.takeover {
			m.takeover, m.tookOver = d, true
		}
	}
	committed, ok := m.load.at[msg.ID]
	if !ok {
		return
	}
	latency := at.Sub(committed)
	m.all = append(m.all, latency)
	for _, w := range m.faults.windows {
		if !committed.Before(w.from) && committed.Before(w.to) {
			return
		}
	}
	m.quiet = append(m.quiet, latency)
}

func (m *measure) finish() {
	slices.Sort(m.all)
	slices.Sort(m.quiet)
	if d := m.last.Sub(m.first).Seconds(); d > 0 {
		m.rate = float64(len(m.all)) / d
	}
	for _, n := range m.perSecond {
		m.best = max(m.best, float64(n))
	}
	for _, at := range m.faults.partitions {
		m.allTakeover = max(m.allTakeover, at.Sub(m.faults.killedAt))
	}
}

// quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func both(sorted []time.Duration) string {
	return span(quantile(sorted, 0.5)) + ", " + span(quantile(sorted, 0.99))
}

// why says what is wrong, or is empty.
func (r *result) why() string {
	var wrong []string
	bad := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	v, committed := r.report, r.load.committed.Load()
	bad(v.Lost != 0, "%d lost", v.Lost)
	bad(v.Doubled != 0, "%d doubled", v.Doubled)
	bad(v.OutOfOrder != 0, "%d out of order", v.OutOfOrder)
	bad(v.Unmarked != 0, "%d stored and not marked", v.Unmarked)
	bad(v.NoRow != 0, "%d stored that were never committed", v.NoRow)
	bad(v.Waiting != 0, "%d still waiting", v.Waiting)
	bad(v.Checked != committed, "%d committed, %d checked", committed, v.Checked)
	bad(v.Stored != committed-1, "%d committed, %d stored", committed, v.Stored)
	bad(len(r.letters) != 1 || r.letters[0] != r.load.poison, "%d dead letters instead of exactly the poisoned event", len(r.letters))
	bad(!r.tookOver, "no event of a partition of %s was stored by another worker", r.faults.victim)
	bad(r.unclean != nil, "a worker did not end as told: %v", r.unclean)
	return strings.Join(wrong, ", ")
}

func (r *result) good() bool { return r.why() == "" }

// print writes the summary.
func (r *result) print(w io.Writer) {
	l, v := r.load, r.report
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value, about string, args ...any) {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\n", name, value, fmt.Sprintf(about, args...)) // the exit code says the same
	}
	_, _ = fmt.Fprintln(w)
	row("events", count(l.committed.Load()), "in %s transactions, %s of them slow; %s more rolled back, with %s events that must not appear",
		count(l.transactions-l.rolledBack), count(l.slow), count(l.rolledBack), count(l.neverWere))
	row("stored", count(v.Stored), "in %d streams, by %d workers that share %d partitions", len(v.Streams), r.opts.Workers, r.opts.Partitions)
	row("lost", count(v.Lost), "")
	row("out of order", count(v.OutOfOrder), "")
	row("doubled", count(v.Doubled), "")
	row("dead letters", count(int64(len(r.letters))), "the poisoned event, refused as %s", r.reason)
	row("rate", fmt.Sprintf("%s/s", count(int64(r.rate))), "from first to last, outage included; best second %s/s", count(int64(r.best)))
	row("latency p50, p99", both(r.quiet), "from commit to stored, of %s events at %s/s while nothing was broken", count(int64(len(r.quiet))), count(int64(r.opts.Rate)))
	row("in all p50, p99", both(r.all), "with takeover, outage and the rush at the end")
	row("takeover", span(r.takeover), "from SIGKILL of %s to the first event of its partitions stored by another; all %d claimed after %s (lease %s)",
		r.faults.victim, len(r.faults.partitions), span(r.allTakeover), r.opts.Lease)
	row("NATS away", span(r.faults.outage.to.Sub(r.faults.outage.from)), "the pool had caught up %s after its return", span(r.faults.caughtUp))
	_ = t.Flush() // as above
	_, _ = fmt.Fprintln(w)
	if why := r.why(); why != "" {
		_, _ = fmt.Fprintf(w, "FAULTS: %s\n", why)
		_ = v.WriteText(w) // as above
		return
	}
	_, _ = fmt.Fprintln(w, "Every committed event is in its stream once, in order; the poisoned one is a dead letter.")
}
