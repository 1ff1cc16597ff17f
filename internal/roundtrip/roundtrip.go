// Package roundtrip sends one event through a running pool: it inserts it as a producer does, and waits until its stream has it. It is what
// `outlane send` and `helm test` do. It needs the rights of a producer, and may read the stream.
package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/pgurl"
	"github.com/outlane/outlane/outbox"
)

// Errors of Send, beside those of the database and of NATS.
var (
	ErrNoStream = errors.New("no stream has this topic")
	ErrNotSeen  = errors.New("the event is in the outbox, and its stream did not have it in time; outlane status says what waits")
)

// Options say what is sent.
type Options struct {
	URL       string // of the database
	Schema    string
	JetStream jetstream.JetStream
	Event     outbox.Event  // without an ID it gets one
	Wait      time.Duration // how long the pool may take, from the commit on
}

// Sent is where the event arrived.
type Sent struct {
	ID       string
	Stream   string
	Sequence uint64        // in the stream
	Took     time.Duration // from the commit until it was seen
}

// pause is between two looks at the stream.
const pause = 20 * time.Millisecond

// Send inserts the event and waits for it. Errors: ErrNoStream, before anything is inserted; ErrNotSeen.
func Send(ctx context.Context, opts Options) (Sent, error) {
	sent := Sent{ID: opts.Event.ID, Stream: opts.Event.Stream}
	if sent.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return sent, fmt.Errorf("name the event: %w", err)
		}
		sent.ID, opts.Event.ID = id.String(), id.String()
	}
	if sent.Stream == "" {
		name, err := opts.JetStream.StreamNameBySubject(ctx, opts.Event.Topic)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return sent, fmt.Errorf("%w: %q", ErrNoStream, opts.Event.Topic)
		}
		if err != nil {
			return sent, fmt.Errorf("find the stream: %w", err)
		}
		sent.Stream = name
	}
	stream, err := opts.JetStream.Stream(ctx, sent.Stream)
	if err != nil {
		return sent, fmt.Errorf("look at stream %s: %w", sent.Stream, err)
	}
	next := stream.CachedInfo().State.LastSeq + 1
	if err := insert(ctx, opts); err != nil {
		return sent, err
	}
	committed := time.Now()
	ctx, cancel := context.WithTimeout(ctx, opts.Wait)
	defer cancel()
	for {
		msg, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(opts.Event.Topic))
		switch {
		case err == nil && msg.Header.Get(jetstream.MsgIDHeader) == sent.ID:
			sent.Sequence, sent.Took = msg.Sequence, time.Since(committed)
			return sent, nil
		case err == nil:
			next = msg.Sequence + 1
			continue
		case ctx.Err() != nil:
			return sent, ErrNotSeen
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return sent, fmt.Errorf("look for the event in stream %s: %w", sent.Stream, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func insert(ctx context.Context, opts Options) error {
	config, err := pgx.ParseConfig(opts.URL)
	if err != nil {
		return fmt.Errorf("read the database's address: %w", pgurl.Check(opts.URL, nil, err))
	}
	if err := pgurl.Check(opts.URL, &config.Config, nil); err != nil {
		return fmt.Errorf("read the database's address: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // as poolers want it
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return outbox.New(outbox.Schema(opts.Schema)).Enqueue(ctx, tx, opts.Event)
	})
}
