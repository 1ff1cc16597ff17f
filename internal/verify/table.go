package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// pageSpan is how many numbers a page has; rows may be fewer, as some were never committed or are archived.
const pageSpan = 10_000

// readTable gives the checker every event, page by page; the next page is fetched while one is taken in.
func (c *check) readTable(ctx context.Context) error {
	pages := make(chan []store.VerifyRow, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pages)
		for after := c.opts.After; after < c.upto; {
			end := min(after+pageSpan, c.upto)
			page, err := c.opts.Store.VerifyPage(ctx, after, end)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				next, err := c.opts.Store.VerifyNext(ctx, end)
				if err != nil || next == 0 {
					return err
				}
				after = next - 1
				continue
			}
			after = end
			select {
			case pages <- page:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		for page := range pages {
			for _, row := range page {
				if err := c.take(ctx, row); err != nil {
					return err
				}
			}
			c.progress("reading the table", page[len(page)-1].Seq-c.opts.After, c.upto-c.opts.After)
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	c.progress("reading the table", c.upto-c.opts.After, c.upto-c.opts.After)
	return nil
}

func (c *check) take(ctx context.Context, row store.VerifyRow) error {
	target := row.Stream
	if target == "" {
		var err error
		if target, err = c.topics.stream(ctx, row.Topic); err != nil {
			return err
		}
	}
	if len(c.opts.Streams) > 0 && !c.targets[target] {
		return nil
	}
	if target != "" {
		c.targets[target], c.hasEvents[target] = true, true
	}
	if row.Seq <= c.cursors[lane(row)] && unsettled(row) {
		c.passedBy = append(c.passedBy, history.Fault{Kind: history.Lost, ID: row.ID, Seq: row.Seq, Stream: target, Partition: row.Partition,
			Reason: whyPassed})
	}
	e := event(row, target)
	e.Strict = c.opts.Strict != nil && c.opts.Strict(row.Stream)
	return c.checker.Add(e)
}

func lane(row store.VerifyRow) store.Lane {
	return store.Lane{Stream: row.Stream, Partition: row.Partition}
}

// unsettled says that a worker has still to do something about the row, or a cursor must not pass it.
func unsettled(row store.VerifyRow) bool {
	dead := row.DeadLetter && (!row.Resolved || row.Skipped)
	return !row.Processed && !dead && (!row.Parked || row.Released != 0)
}

func event(row store.VerifyRow, target string) history.Event {
	e := history.Event{
		ID: row.ID, Seq: row.Seq, Stream: row.Stream, Target: target, Partition: row.Partition, Key: row.Key,
		Xact: row.Xact, XactOldest: row.XactOldest, Processed: row.Processed, Release: row.Released,
	}
	switch {
	case row.DeadLetter && !row.Resolved:
		e.DeadLetter = history.OpenDeadLetter
	case row.Skipped:
		e.DeadLetter = history.SkippedDeadLetter
	case row.DeadLetter:
		e.DeadLetter = history.RetriedDeadLetter
	}
	switch {
	case row.Parked && row.Released == 0:
		e.Parked = history.StillParked
	case row.Parked, row.Blocks:
		e.Parked = history.Released
	}
	return e
}

// topics finds the stream of events that were inserted without one.
type topics struct {
	js      jetstream.JetStream
	asked   bool
	streams []jetstream.StreamConfig
	known   map[string]string
}

func (t *topics) stream(ctx context.Context, topic string) (string, error) {
	if !t.asked {
		list := t.js.ListStreams(ctx)
		for info := range list.Info() {
			t.streams = append(t.streams, info.Config)
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return "", fmt.Errorf("list the streams: %w", err)
		}
		t.asked, t.known = true, map[string]string{}
	}
	name, ok := t.known[topic]
	if !ok {
		name = t.find(topic)
		if len(t.known) < 100_000 {
			t.known[topic] = name
		}
	}
	return name, nil
}

func (t *topics) find(topic string) string {
	for _, s := range t.streams {
		for _, pattern := range s.Subjects {
			if publish.MatchTopic(pattern, topic) {
				return s.Name
			}
		}
	}
	return ""
}
