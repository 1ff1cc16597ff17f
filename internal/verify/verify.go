package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/store"
)

// Options say what to check. Store and JetStream are needed, and stay open.
type Options struct {
	Store     *store.Store
	JetStream jetstream.JetStream
	// Streams limits the check to events of these streams; empty: all. The check fails if one neither exists nor has events.
	Streams []string
	// After limits the check to events with a higher seq.
	After int64
	// Strict tells whether events with this in their stream column are sent in order of sequence; nil: none are.
	Strict func(stream string) bool
	// Settle is how long a stored event may stay unmarked before it is reported; 0 means 10 s.
	Settle time.Duration
	// Complete says that every event ever inserted is still in the table, so that a message without a row is a fault.
	Complete bool
	// First is how many offenders of each kind are listed; 0 means 20.
	First int
	// Progress, if not nil, is called often, from one goroutine.
	Progress func(Progress)
	// OnMessage, if not nil, is called for each message that belongs to an event of the table, in stream order.
	OnMessage func(history.Message)
}

// DefaultSettle is Options.Settle if that is 0.
const DefaultSettle = 10 * time.Second

const defaultFirst = 20

type check struct {
	opts    Options
	checker *history.Checker
	upto    int64 // highest seq of the check
	topics  *topics
	targets map[string]bool // streams to read
	cursors map[store.Lane]int64
	// hasEvents are those of targets that events of the table go to.
	hasEvents map[string]bool
	notes     []string
	suspects
}

// Run makes one check. Its error says that the check could not be made, never that it found something: see Report.Clean.
func Run(ctx context.Context, opts Options) (Report, error) {
	c, err := newCheck(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	if err := c.readTable(ctx); err != nil {
		return Report{}, fmt.Errorf("read the outbox table: %w", err)
	}
	report := Report{Streams: []StreamReport{}, First: []history.Fault{}, complete: opts.Complete}
	names := make([]string, 0, len(c.targets))
	for name := range c.targets {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		stream, err := c.readStream(ctx, name)
		if err != nil {
			return Report{}, fmt.Errorf("read stream %q: %w", name, err)
		}
		report.Streams = append(report.Streams, stream)
	}
	counts := c.checker.Report()
	if err := c.settle(ctx); err != nil {
		return Report{}, fmt.Errorf("look again at the outbox table: %w", err)
	}
	c.fill(&report, counts)
	return report, nil
}

func newCheck(ctx context.Context, opts Options) (*check, error) {
	if opts.Store == nil || opts.JetStream == nil {
		return nil, errors.New("verify: Store and JetStream are needed")
	}
	if !opts.JetStream.Conn().IsConnected() {
		return nil, errors.New("NATS is not connected")
	}
	if opts.Settle == 0 {
		opts.Settle = DefaultSettle
	}
	if opts.First == 0 {
		opts.First = defaultFirst
	}
	meta, err := opts.Store.Meta(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the schema: %w", err)
	}
	upto, err := opts.Store.MaxSeq(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the newest event: %w", err)
	}
	cursors, err := opts.Store.Cursors(ctx) // before any row: what is at or under a cursor was settled when it was saved
	if err != nil {
		return nil, err
	}
	c := &check{opts: opts, upto: upto, cursors: cursors, topics: &topics{js: opts.JetStream}, targets: map[string]bool{}, hasEvents: map[string]bool{}}
	c.suspects = suspects{store: opts.Store, first: opts.First, settleFor: opts.Settle}
	c.checker = history.New(history.Options{
		Partitions: meta.Partitions, SequenceCache: meta.SequenceCache, Newest: max(upto, 1), First: -1, OnFault: c.suspect,
	})
	if meta.SequenceCache > 1 {
		c.notes = append(c.notes, fmt.Sprintf("the outbox sequence has CACHE %d: its numbers say nothing about time", meta.SequenceCache))
	}
	for _, name := range opts.Streams {
		c.targets[name] = true
	}
	return c, nil
}

func (c *check) progress(step string, done, total int64) {
	if c.opts.Progress != nil {
		c.opts.Progress(Progress{Step: step, Done: done, Total: total})
	}
}

func (c *check) fill(r *Report, counts history.Report) {
	r.Checked, r.Stored, r.Lost, r.Doubled = counts.Checked, counts.Stored, counts.Lost, counts.Doubled
	r.Lost, r.Checked, r.Waiting = r.Lost+c.passed, r.Checked+c.passed, counts.Waiting-c.passed
	r.OutOfOrder, r.OutOfOrderKey = counts.OutOfOrder-c.forgiven, counts.OutOfOrderKey-c.forgivenKey
	r.Unmarked, r.NoRow = c.unmarked, c.noRow
	r.InFlight = counts.Newer + c.late
	r.DeadLetters, r.Skipped, r.Parked, r.Expired = counts.DeadLetters, counts.Skipped, counts.StillParked, counts.Expired
	for _, f := range c.listed {
		if f.Kind != history.Phantom || r.complete {
			r.First = append(r.First, f)
		}
	}
	r.Notes = append([]string{}, c.notes...)
	note := func(n int64, format string) {
		if n != 0 {
			r.Notes = append(r.Notes, fmt.Sprintf(format, n))
		}
	}
	note(counts.Breaks, "transaction ids or the sequence went backwards %d times (a restore, or a sequence set back): order across that is not judged")
	note(counts.Misplaced, "%d events are in another stream than their topic belongs to now: their order is not judged")
	note(r.Expired, "%d events that were marked long ago cannot be checked: their streams have dropped messages")
	if !r.complete {
		note(r.NoRow, "%d messages have no row in the table: archived, or of another outbox")
	}
}
