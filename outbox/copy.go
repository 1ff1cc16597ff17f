package outbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

var copyColumns = []string{"id", "stream", "topic", "partition_key", "payload", "payload_bytes", "content_type", "headers", "created_at"}

// EnqueueCopy adds a long sequence of events to the outbox in the caller's transaction by COPY, without holding them all in memory, and
// returns how many there were. It pays from about a thousand events on. The events are validated as they are read, so after any error, a
// *ValidationError too, the transaction must be rolled back.
func (o *Outbox) EnqueueCopy(ctx context.Context, tx pgx.Tx, events iter.Seq[Event]) (int64, error) {
	next, stop := iter.Pull(events)
	defer stop()
	source := &copySource{outbox: o, next: next, index: -1}
	n, err := tx.CopyFrom(ctx, o.table, copyColumns, source)
	if source.err != nil {
		// What the database says then is only that the client broke off.
		return 0, source.err
	}
	if err != nil {
		return 0, fmt.Errorf("copy events into the outbox: %w", err)
	}
	return n, nil
}

// EnqueueCopy adds the events to the outbox of the default schema. See Outbox.EnqueueCopy.
func EnqueueCopy(ctx context.Context, tx pgx.Tx, events iter.Seq[Event]) (int64, error) {
	return standard.EnqueueCopy(ctx, tx, events)
}

// copySource is the pgx.CopyFromSource over a sequence of events.
type copySource struct {
	outbox *Outbox
	next   func() (Event, bool)
	index  int
	row    [9]any
	err    error
}

// Next implements pgx.CopyFromSource.
func (s *copySource) Next() bool {
	event, ok := s.next()
	if !ok {
		return false
	}
	s.index++
	r, err := s.outbox.prepare(s.index, event)
	if err != nil {
		s.err = err
		return false
	}
	created := r.CreatedAt
	if created.IsZero() {
		created = time.Now()
	}
	s.row = [9]any{r.ID, optional(r.Stream), r.Topic, optional(r.Key), nil, nil, optional(r.ContentType), nil, created}
	if r.payload != nil {
		s.row[4] = r.payload
	}
	if r.Bytes != nil {
		s.row[5] = r.Bytes
	}
	if r.headers != nil {
		s.row[7] = r.headers
	}
	return true
}

// Values implements pgx.CopyFromSource.
func (s *copySource) Values() ([]any, error) { return s.row[:], nil }

// Err implements pgx.CopyFromSource.
func (s *copySource) Err() error {
	return s.err
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}
