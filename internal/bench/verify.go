package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// faults are what is wrong with what was stored.
type faults struct {
	outOfOrder int // messages behind a later one of their key
	doubled    int
	missing    int
}

func (f *faults) add(o faults) {
	f.outOfOrder, f.doubled, f.missing = f.outOfOrder+o.outOfOrder, f.doubled+o.doubled, f.missing+o.missing
}

// describe is for a row's note.
func (f faults) describe(r Row) Row {
	if f.outOfOrder > 0 {
		r = r.note("%s out of order", amount(f.outOfOrder))
	}
	if f.doubled > 0 {
		r = r.note("%s doubled", amount(f.doubled))
	}
	if f.missing > 0 {
		r = r.note("%s missing", amount(f.missing))
	}
	return r
}

// verify reads the streams from end to end. The events are numbered from 1 to n.
func (s *site) verify(ctx context.Context, n int) (f faults, err error) {
	seen := make([]bool, n+1)
	for _, name := range s.streams {
		if err := s.verifyStream(ctx, name, seen, &f); err != nil {
			return f, fmt.Errorf("read stream %s: %w", name, err)
		}
	}
	for _, have := range seen[1:] {
		if !have {
			f.missing++
		}
	}
	return f, nil
}

func (s *site) verifyStream(ctx context.Context, name string, seen []bool, f *faults) error {
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	latest := map[string]int{}
	for range stream.CachedInfo().State.Msgs {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(field(msg.Data(), `"n": `, ',')))
		if err != nil || n < 1 || n >= len(seen) {
			return fmt.Errorf("a message has no number: %.60q", msg.Data())
		}
		if seen[n] {
			f.doubled++
			continue
		}
		seen[n] = true
		team := field(msg.Data(), `"team_id": "`, '"')
		if n < latest[string(team)] {
			f.outOfOrder++
			continue
		}
		latest[string(team)] = n
	}
	return nil
}

// field cuts a value out of a payload as Postgres prints it.
func field(payload []byte, before string, end byte) []byte {
	_, rest, _ := bytes.Cut(payload, []byte(before))
	if i := bytes.IndexByte(rest, end); i >= 0 {
		return rest[:i]
	}
	return nil
}
