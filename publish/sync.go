package publish

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outlane/outlane/internal/crash"
)

// syncCall takes the answers of a call that sends one message at a time. The reply subjects end in the message's number in the call.
type syncCall struct {
	stream  string
	answers chan syncAnswer
}

type syncAnswer struct {
	number string
	seq    uint64
	err    *Error
}

// A syncCall that does not listen loses answers beyond these few, which is no more than a lost message.
const syncAnswers = 16

func (s *syncCall) answer(tail string, m *nats.Msg) {
	a := syncAnswer{number: tail}
	if nobodyListens(m) {
		a.err = outage(ReasonNoResponders, nats.ErrNoResponders)
	} else {
		said, ok := readAnswer(m)
		switch {
		case ok && said.Error != nil:
			a.err = said.refusal(s.stream)
		case ok && said.Type == "" && said.Stream == s.stream && said.Seq > 0:
			a.seq = said.Seq
		default: // not JetStream's, or not our stream's: another answer may follow
			a.err = outage(ReasonNotJetStream, errForeignAnswer)
		}
	}
	select {
	case s.answers <- a:
	default:
	}
}

var errForeignAnswer = errors.New("an answer came that is not JetStream's")

// sync sends one message after the other, each after the answer to the one before.
func (c *call) sync(ctx context.Context, msgs []Message) (res Result, ofStream bool) {
	s := &syncCall{stream: c.stream, answers: make(chan syncAnswer, syncAnswers)}
	id := c.inbox.open(s)
	defer c.inbox.close(id)
	enc := c.newEncoder()
	timer := time.NewTimer(c.cfg.AckTimeout)
	defer timer.Stop()
	for i := range msgs {
		if i > 0 && i == len(msgs)/2 {
			crash.At(crash.Sending)
		}
		if p := enc.encode(&msgs[i]); p != nil {
			res.Err = p.Error
			return res, p.ofStream
		}
		number := strconv.Itoa(i)
		enc.msg.Reply = c.inbox.prefix + id + "." + number
		if err := c.link.nc.PublishMsg(&enc.msg); err != nil {
			res.Err = c.sendError(err)
			return res, false
		}
		timer.Reset(c.cfg.AckTimeout)
		seq, err := c.await(ctx, s, number, timer)
		if err != nil {
			res.Err = err
			return res, false
		}
		res.Stored++
		res.StreamSeq = max(res.StreamSeq, seq)
	}
	return res, false
}

func (c *call) await(ctx context.Context, s *syncCall, number string, timer *time.Timer) (uint64, *Error) {
	late := outage(ReasonTimeout, errNoAnswer)
	for {
		select {
		case a := <-s.answers:
			switch {
			case a.number != number:
			case a.err != nil && a.err.Reason == ReasonNotJetStream:
				late = a.err
			default:
				return a.seq, a.err
			}
		case <-timer.C:
			return 0, late
		case <-c.link.down:
			return 0, c.wentDown()
		case <-ctx.Done():
			return 0, contextError(ctx)
		}
	}
}
