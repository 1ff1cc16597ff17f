package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// The floor is what a drain costs at least with the store and publish packages: every lane's rows are fetched in order, published as fast
// batches and marked, with nothing around it: no leases, no look at what is new, no cursors, no limits, no retries, no metrics, no lag. Its
// processes split the partitions by their numbers.
type floorOrder struct {
	Database, NATS string
	Lanes          []store.Lane
	Upto           int64
	Batch          int
}

const (
	floorBatch   = 250     // as the workers'
	floorLanes   = 8       // lanes at once
	floorMarkers = 2       // mark statements at once
	floorMark    = 2000    // events in one of them, beyond the first batch
	floorBytes   = 4 << 20 // bytes in a batch
)

type floor struct {
	order  floorOrder
	db     *store.Store
	broker *publish.Broker
	epochs map[int]int64
	marks  chan store.Mark
}

func (f *floor) prepare(ctx context.Context) (err error) {
	if f.db, err = store.Open(store.Config{URL: f.order.Database, MaxConns: 16, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	if f.broker, err = publish.Connect(publish.Config{URL: f.order.NATS, Name: "floor"}); err != nil {
		return err
	}
	if err := f.broker.WaitConnected(ctx); err != nil {
		return err
	}
	partitions := map[int]bool{}
	var list []int
	for _, l := range f.order.Lanes {
		if !partitions[l.Partition] {
			partitions[l.Partition] = true
			list = append(list, l.Partition)
		}
	}
	f.epochs, err = f.db.Epochs(ctx, list)
	return err
}

func (f *floor) end() {
	if f.broker != nil {
		f.broker.Close()
	}
	if f.db != nil {
		f.db.Close()
	}
}

func (f *floor) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.marks = make(chan store.Mark, 4*floorLanes)
	lanes := make(chan store.Lane, len(f.order.Lanes))
	for _, l := range f.order.Lanes {
		lanes <- l
	}
	close(lanes)
	var senders, markers sync.WaitGroup
	for range floorLanes {
		senders.Go(func() {
			for l := range lanes {
				if err := f.drain(ctx, l); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for range floorMarkers {
		markers.Go(func() {
			if err := f.mark(ctx); err != nil {
				cancel(err)
			}
		})
	}
	senders.Wait()
	close(f.marks)
	markers.Wait()
	return context.Cause(ctx)
}

type page struct {
	events []store.Event
	more   bool
	err    error
}

// drain empties a lane. The next page is read while one is published.
func (f *floor) drain(ctx context.Context, l store.Lane) error {
	read := func(after int64) <-chan page {
		c := make(chan page, 1)
		go func() {
			var p page
			p.events, p.more, p.err = f.db.Fetch(ctx, l, after, f.order.Upto, nil, f.order.Batch, floorBytes)
			c <- p
		}()
		return c
	}
	next := read(0)
	for {
		p := <-next
		if p.err != nil || len(p.events) == 0 {
			return p.err
		}
		if p.more {
			next = read(p.events[len(p.events)-1].Seq)
		}
		msgs := make([]publish.Message, len(p.events))
		m := store.Mark{Lane: l, Epoch: f.epochs[l.Partition], IDs: make([]string, len(p.events)), Places: make([]store.Place, len(p.events))}
		for i, e := range p.events {
			m.IDs[i], m.Places[i] = e.ID, e.Place
			msgs[i] = publish.Message{ID: e.ID, Topic: e.Topic, Key: e.Key, Seq: e.Seq, Partition: e.Partition, Headers: e.Headers,
				ContentType: e.ContentType, Data: e.Payload}
		}
		if res := f.broker.Publish(ctx, l.Stream, msgs); res.Err != nil {
			return fmt.Errorf("publish: %w", res.Err)
		}
		select {
		case f.marks <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !p.more {
			return nil
		}
	}
}

// mark marks as much as waits, in one statement.
func (f *floor) mark(ctx context.Context) error {
	for m := range f.marks {
		batch, events := []store.Mark{m}, len(m.IDs)
	gather:
		for events < floorMark {
			select {
			case more, ok := <-f.marks:
				if !ok {
					break gather
				}
				batch, events = append(batch, more), events+len(more.IDs)
			default:
				break gather
			}
		}
		fenced, err := f.db.Mark(ctx, batch)
		if err != nil {
			return err
		}
		if len(fenced) > 0 {
			return errors.New("mark: somebody owns the partitions")
		}
	}
	return nil
}

// runFloor has n processes drain a site that nobody else works on.
func (s *site) runFloor(ctx context.Context, n, partitions int, batch int) error {
	var upto int64
	if err := s.db.QueryRow(ctx, "SELECT max(seq) FROM outbox_events").Scan(&upto); err != nil {
		return fmt.Errorf("find the end of the backlog: %w", err)
	}
	for i := range n {
		o := floorOrder{Database: s.url, NATS: s.natsAt, Upto: upto, Batch: batch}
		for p := i; p < partitions; p += n {
			for _, stream := range s.streams {
				o.Lanes = append(o.Lanes, store.Lane{Stream: stream, Partition: p})
			}
		}
		if err := s.startOther("floor", order{Floor: &o}); err != nil {
			return err
		}
	}
	return nil
}
