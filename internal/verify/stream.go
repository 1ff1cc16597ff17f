package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/publish"
)

const (
	// quiet is how long nothing may arrive before the server is asked whether there is anything left.
	quiet = 2 * time.Second
	// patience is how long a consumer may give nothing although there is something left.
	patience = 8 * time.Second
	// infoTimeout bounds one question to the server.
	infoTimeout = 10 * time.Second
	// sourceHeader is set by the server on messages that it copies from another stream.
	sourceHeader = "Nats-Stream-Source"
)

// stream is one stream while it is read.
type stream struct {
	*check
	handle jetstream.Stream
	last   uint64 // where reading ends
	pos    uint64 // the last message read
	gap    uint64 // the highest position under which messages were missing
	report StreamReport
}

// readStream gives the checker every message of a stream, up to the end that it has now.
func (c *check) readStream(ctx context.Context, name string) (StreamReport, error) {
	s := &stream{check: c, report: StreamReport{Name: name}}
	before, err := s.open(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrInvalidStreamName) {
		if slices.Contains(c.opts.Streams, name) && !c.hasEvents[name] {
			return s.report, errors.New("there is no such stream, and no event that goes there")
		}
		c.notes = append(c.notes, fmt.Sprintf("there is no stream %q", name))
		s.report.Missing = true
		return s.report, nil
	}
	if err != nil {
		return s.report, err
	}
	s.report.FirstSeq, s.report.LastSeq = before.State.FirstSeq, before.State.LastSeq
	s.last = before.State.LastSeq
	if before.State.Msgs > 0 {
		s.pos = before.State.FirstSeq - 1
		if before.Config.Retention == jetstream.LimitsPolicy {
			err = s.consume(ctx)
		} else {
			err = s.walk(ctx)
		}
		if err != nil {
			return s.report, err
		}
	}
	if err := c.lookUp(ctx); err != nil {
		return s.report, fmt.Errorf("look up events: %w", err)
	}
	after, err := s.info(ctx)
	if err != nil {
		return s.report, err
	}
	s.judgeTrim(before, after)
	return s.report, nil
}

func (s *stream) open(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	handle, err := s.opts.JetStream.Stream(ctx, s.report.Name)
	if err != nil {
		return nil, err
	}
	s.handle = handle
	return handle.CachedInfo(), nil
}

func (s *stream) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	info, err := s.handle.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the stream's state: %w", err)
	}
	return info, nil
}

// consume reads by an ordered consumer that gets headers only. A consumer may have been put on a server that has trouble of its own; if it falls
// silent, what is left is read message by message from the stream's leader.
func (s *stream) consume(ctx context.Context) error {
	consumer, err := s.handle.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.pos + 1,
	})
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return fmt.Errorf("start the consumer: %w", err)
	}
	defer messages.Stop()
	heard := time.Now()
	for s.pos < s.last {
		msg, err := messages.Next(jetstream.NextMaxWait(quiet))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrTimeout):
			if over, err := s.over(ctx); err != nil || over {
				return err
			}
			if time.Since(heard) > patience {
				return s.walk(ctx)
			}
			continue
		case err != nil:
			return fmt.Errorf("read from the consumer: %w", err)
		}
		heard = time.Now()
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read from the consumer: %w", err)
		}
		if err := s.take(ctx, meta.Sequence.Stream, msg.Headers(), meta.Timestamp); err != nil {
			return err
		}
	}
	return nil
}

// over tells whether the stream holds nothing any more between the last message read and the end.
func (s *stream) over(ctx context.Context) (bool, error) {
	next, err := s.next(ctx)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the next message: %w", err)
	}
	return next.Sequence > s.last, nil
}

// walk reads message by message, where a consumer would take part in what the stream is for.
func (s *stream) walk(ctx context.Context) error {
	for s.pos < s.last {
		msg, err := s.next(ctx)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get a message: %w", err)
		}
		if msg.Sequence > s.last {
			return nil
		}
		if err := s.take(ctx, msg.Sequence, msg.Header, msg.Time); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) next(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	return s.handle.GetMsg(ctx, s.pos+1, jetstream.WithGetMsgSubject(">"))
}

func (s *stream) take(ctx context.Context, pos uint64, header nats.Header, at time.Time) error {
	if pos > s.last {
		s.pos = s.last
		return nil
	}
	if pos > s.pos+1 {
		s.gap = pos
	}
	s.pos = pos
	if pos%1000 == 0 || pos == s.last {
		s.progress("reading "+s.report.Name, int64(pos-s.report.FirstSeq+1), int64(s.last-s.report.FirstSeq+1))
	}
	id := header.Get(nats.MsgIdHdr)
	m := history.Message{Stream: s.report.Name, StreamSeq: pos, ID: publish.DecodeID(id), Time: at}
	var err error
	if m.Seq, err = strconv.ParseInt(header.Get(publish.HeaderSeq), 10, 64); err != nil || id == "" {
		s.report.Foreign++
		return nil
	}
	if header.Get(sourceHeader) != "" {
		s.report.Foreign++ // copied from another stream
		return nil
	}
	if m.Seq <= s.opts.After {
		return nil
	}
	if m.Partition, err = strconv.Atoi(header.Get(publish.HeaderPartition)); err != nil {
		m.Partition = -1
	}
	s.report.Messages++
	known, err := s.checker.Store(m)
	if err != nil {
		return err
	}
	if known && s.opts.OnMessage != nil {
		s.opts.OnMessage(m)
	}
	if s.full() {
		return s.lookUp(ctx)
	}
	return nil
}

// judgeTrim finds out what the stream has dropped, before or while it was read.
func (s *stream) judgeTrim(before, after *jetstream.StreamInfo) {
	cfg, name := before.Config, s.report.Name
	began := max(cfg.FirstSeq, 1)
	dropsOld := cfg.Discard == jetstream.DiscardOld
	switch {
	case cfg.Retention != jetstream.LimitsPolicy:
		s.checker.Trim(name, history.Sparse)
		s.note("stream %q drops what its consumers have acknowledged: only what it still holds can be checked", name)
	case dropsOld && cfg.MaxMsgsPerSubject > 0:
		s.checker.Trim(name, history.Sparse)
		s.note("stream %q keeps %d messages of a subject: only what it still holds can be checked", name, cfg.MaxMsgsPerSubject)
	case after.State.FirstSeq <= began:
	case cfg.MaxAge == 0 && (!dropsOld || cfg.MaxMsgs <= 0 && cfg.MaxBytes <= 0):
		s.note("stream %q has no limits, yet it begins at message %d: somebody purged or deleted what was before", name, after.State.FirstSeq)
	case s.gap != 0 && after.State.FirstSeq >= s.gap:
		s.checker.Trim(name, history.Sparse)
		s.note("stream %q dropped messages faster than they were read", name)
	default:
		s.checker.Trim(name, history.Head)
		s.note("stream %q has dropped its messages before %d", name, after.State.FirstSeq)
	}
	if n := before.State.NumDeleted; n > 0 {
		s.note("%d messages are missing from the middle of stream %q", n, name)
	}
}

func (c *check) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}
