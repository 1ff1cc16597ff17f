package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/publish"
)

// A server that says nothing for two heartbeats is asked anew; the client's own values are for networks that are slower.
const (
	pullExpiry    = 10 * time.Second
	pullHeartbeat = 2 * time.Second
)

// watch reads the streams of a site all the time.
type watch struct {
	mu      sync.Mutex
	readers []jetstream.ConsumeContext
	last    error
}

// start begins to read, unless that is done already. The streams must be there.
func (w *watch) start(ctx context.Context, x *Site) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.readers) > 0 {
		return nil
	}
	for _, kind := range kinds {
		consumer, err := x.js.OrderedConsumer(ctx, x.stream(kind), jetstream.OrderedConsumerConfig{HeadersOnly: true})
		if err != nil {
			return fmt.Errorf("watch stream %s: %w", x.stream(kind), err)
		}
		reader, err := consumer.Consume(x.take, jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { w.note(err) }))
		if err != nil {
			return fmt.Errorf("watch stream %s: %w", x.stream(kind), err)
		}
		w.readers = append(w.readers, reader)
	}
	return nil
}

// take notes that a message is stored.
func (x *Site) take(msg jetstream.Msg) {
	id, err := uuid.Parse(publish.DecodeID(msg.Headers().Get(nats.MsgIdHdr)))
	if err != nil {
		return // not of this package
	}
	meta, err := msg.Metadata()
	if err != nil {
		x.watch.note(err)
		return
	}
	x.ledger.see(id, meta.Timestamp)
}

// note keeps an error, after which the consumer tries again by itself.
func (w *watch) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// failure is the last trouble, which may be over.
func (w *watch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return nil
	}
	return errors.Join(errors.New("the watch of the streams had trouble"), w.last)
}

func (w *watch) stop() {
	w.mu.Lock()
	readers := w.readers
	w.readers = nil
	w.mu.Unlock()
	for _, r := range readers {
		r.Stop()
	}
}
