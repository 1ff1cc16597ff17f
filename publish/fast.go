package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outlane/outlane/internal/crash"
)

// What a message does in its batch, as the reply subject says it: <inbox>.<batch>.<flow>.fail.<number>.<operation>.$FI
const (
	opStart   = 0
	opAppend  = 1
	opCommit  = 2 // with this message
	opPing    = 4
	batchGaps = ".500.fail." // an acknowledgement every 500 messages or more often, and no message after one that is missing
	batchTail = ".$FI"
)

// batch takes the answers of one fast batch.
type batch struct {
	stream string
	id     string
	stop   atomic.Bool   // nothing more need be sent
	wake   chan struct{} // has a token when there is news

	mu       sync.Mutex
	refused  int    // the lowest number of a message that was refused, 0 if none was
	why      *Error // why it was
	open     bool   // the refusal left the batch open
	ended    bool   // the server said how the batch ended
	count    int    // then: how many messages are stored
	seq      uint64 // then: the last stream sequence that this batch itself stored, 0 if every message had been stored before
	lost     *Error // the server does not know the batch
	foreign  bool   // an answer came that is not JetStream's
	progress uint64 // moves when the server moves
}

func (b *batch) answer(tail string, m *nats.Msg) {
	number, op := parseTail(tail)
	b.mu.Lock()
	defer b.mu.Unlock()
	if number > 0 {
		b.take(number, op, m)
	}
	if b.refused > 0 || b.lost != nil || b.ended {
		b.stop.Store(true)
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// parseTail reads <flow>.fail.<number>.<operation>.$FI.
func parseTail(tail string) (number, op int) {
	parts := strings.Split(tail, ".")
	if len(parts) != 5 {
		return 0, 0
	}
	number, _ = strconv.Atoi(parts[2])
	op, _ = strconv.Atoi(parts[3])
	return number, op
}

var flowAck = []byte(`{"type":"ack","seq":`)

func (b *batch) take(number, op int, m *nats.Msg) {
	if bytes.HasPrefix(m.Data, flowAck) {
		// It counts ids that are in flight as stored, which they may never be: so it only shows that the server moves.
		digits := m.Data[len(flowAck):]
		if end := bytes.IndexByte(digits, ','); end > 0 {
			seq, _ := strconv.ParseUint(string(digits[:end]), 10, 64)
			b.progress = max(b.progress, seq+1)
		}
		return
	}
	if nobodyListens(m) {
		b.refuse(number, op, outage(ReasonNoResponders, nats.ErrNoResponders), true)
		return
	}
	a, ok := readAnswer(m)
	switch {
	case !ok:
		b.foreign = true
	case a.Type == "err" && a.Error != nil:
		b.refuse(int(a.Seq), opAppend, classify(a.Error), false)
	case a.Type != "":
		// A gap is only said; how far the batch came follows.
	case a.Error != nil:
		why := a.refusal(b.stream)
		if why.Reason == ReasonBatchLost {
			b.lost = why
			return
		}
		b.refuse(number, op, why, true)
	case a.Stream == b.stream && a.Batch == b.id:
		b.ended, b.count, b.seq = true, int(a.Count), a.Seq
	default:
		b.foreign = true
	}
}

// refuse notes that a message was refused. After a first message was, the server knows no batch.
func (b *batch) refuse(number, op int, why *Error, open bool) {
	switch {
	case op == opPing:
		if b.lost == nil {
			b.lost = why
		}
		return
	case b.refused == 0 || number < b.refused:
		b.refused, b.why, b.open = number, why, open && number > 1
	}
	if number == 1 {
		b.ended, b.count, b.seq = true, 0, 0
	}
}

var errBatchLost = errors.New("the server does not know the batch any more")

// fast sends msgs as one batch, without waiting, and then waits for the server to say how far it came.
func (c *call) fast(ctx context.Context, msgs []Message) (Result, bool) {
	b := &batch{stream: c.stream, wake: make(chan struct{}, 1)}
	b.id = c.inbox.open(b)
	defer c.inbox.close(b.id)

	first := c.newEncoder()
	bad := first.encode(&msgs[0])
	if bad == nil && len(msgs) > 1 {
		// One message ahead, because the last one that can be sent must be sent as such.
		ahead := c.newEncoder()
		if bad = ahead.encode(&msgs[1]); bad == nil {
			return c.send(ctx, b, msgs, first, ahead)
		}
	}
	// None or one can be sent: that is no batch.
	res, _ := c.sync(ctx, msgs[:1])
	if res.Err != nil {
		return res, bad != nil && bad.ofStream && res.Stored == 0
	}
	return Result{Stored: res.Stored, StreamSeq: res.StreamSeq, Err: bad.Error}, bad.ofStream
}

// send sends the batch; msgs[0] and msgs[1] are encoded already.
func (c *call) send(ctx context.Context, b *batch, msgs []Message, current, ahead *encoder) (Result, bool) {
	var bad *problem
	reply := make([]byte, 0, 128)
	sent := 0
	for i := range msgs {
		if i == len(msgs)/2 {
			crash.At(crash.Sending, c.flush)
		}
		last := i == len(msgs)-1
		if i > 0 && !last {
			bad = ahead.encode(&msgs[i+1])
			last = bad != nil
		}
		op := opAppend
		switch {
		case last:
			op = opCommit
		case i == 0:
			op = opStart
		}
		reply = c.reply(reply[:0], b, i+1, op)
		current.msg.Reply = string(reply)
		if err := c.link.nc.PublishMsg(&current.msg); err != nil {
			return Result{Err: c.batchSendError(err)}, false
		}
		sent++
		if last || b.stop.Load() {
			break
		}
		if ctx.Err() != nil {
			return Result{Err: contextError(ctx)}, false
		}
		current, ahead = ahead, current
	}
	if err := c.wait(ctx, b, sent, msgs[0].Topic); err != nil {
		return Result{Err: err}, false
	}
	res := c.result(ctx, b, msgs[:sent])
	if isDisabled(res.Err) {
		return res, true
	}
	if res.Err == nil && sent < len(msgs) {
		if bad == nil {
			res.Err = outage(ReasonBatchLost, errBatchLost)
			return res, false
		}
		res.Err = bad.Error
		return res, bad.ofStream
	}
	return res, false
}

// batchSendError is about the batch, whichever message the client did not take: the next call looks at the messages again.
func (c *call) batchSendError(err error) *Error {
	e := c.sendError(err)
	if e.Kind == Refused {
		return outage(ReasonServer, e.Err)
	}
	return e
}

// isDisabled says whether the stream has stopped taking batches.
func isDisabled(e *Error) bool {
	if e == nil {
		return false
	}
	api := asAPIError(e.Err)
	return api != nil && api.ErrCode == codeBatchDisabled
}

func (c *call) reply(buf []byte, b *batch, number, op int) []byte {
	buf = append(buf, c.inbox.prefix...)
	buf = append(buf, b.id...)
	buf = append(buf, batchGaps...)
	buf = strconv.AppendInt(buf, int64(number), 10)
	buf = append(buf, '.', byte('0'+op))
	return append(buf, batchTail...)
}

// ping makes the server say how far it is, and end the batch if it has not got as far as number. Whoever does not know batches must not store the
// ping, hence a stream name that none can have. A topic that the batch began with leads it to the stream.
func (c *call) ping(b *batch, topic string, number int) error {
	return c.link.nc.PublishMsg(&nats.Msg{
		Subject: topic,
		Reply:   string(c.reply(nil, b, number, opPing)),
		Header:  nats.Header{headerExpectedStream: {"."}},
	})
}

// wait returns when the batch has ended, or an error when that cannot be known.
func (c *call) wait(ctx context.Context, b *batch, sent int, topic string) *Error {
	var (
		pingEvery = min(c.cfg.AckTimeout/5, time.Second)
		moved     = time.Now()
		progress  uint64
		endSent   bool
	)
	timer := time.NewTimer(pingEvery)
	defer timer.Stop()
	for {
		b.mu.Lock()
		over := b.ended || b.lost != nil
		mustEnd := b.open && !endSent
		number := b.refused
		if b.progress > progress {
			progress, moved = b.progress, time.Now()
		}
		foreign := b.foreign
		b.mu.Unlock()
		if over {
			return nil
		}
		if mustEnd {
			// If the refused message was the last that was sent, nothing else ends the batch.
			endSent = true
			if err := c.ping(b, topic, number); err != nil {
				return c.batchSendError(err)
			}
		}
		select {
		case <-b.wake:
		case <-timer.C:
			if time.Since(moved) >= c.cfg.AckTimeout {
				if foreign {
					return outage(ReasonNotJetStream, errForeignAnswer)
				}
				return outage(ReasonTimeout, errNoAnswer)
			}
			// Answers can be lost, and so can what was sent, with a leader.
			if err := c.ping(b, topic, sent); err != nil {
				return c.batchSendError(err)
			}
			timer.Reset(pingEvery)
		case <-c.link.down:
			return c.wentDown()
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
}

// result is what the batch's end says about the messages that were sent.
func (c *call) result(ctx context.Context, b *batch, sent []Message) Result {
	b.mu.Lock()
	ended, count, seq := b.ended, min(b.count, len(sent)), b.seq
	refused, why, lost := b.refused, b.why, b.lost
	b.mu.Unlock()
	if !ended {
		if refused > 0 && why.Kind == Outage {
			lost = why
		}
		return Result{Err: lost}
	}
	if refused > 0 {
		count = min(count, refused-1)
	}
	if count > 0 && seq == 0 {
		// Every message is a duplicate. The server skips an id also while the message is only proposed to its peers and may yet be lost. One at a
		// time each gets its own answer, and in order nothing can overtake.
		res, _ := c.sync(ctx, sent[:count])
		if res.Err != nil {
			return res
		}
		seq = res.StreamSeq
	}
	res := Result{Stored: count, StreamSeq: seq}
	switch {
	case refused == count+1:
		res.Err = why
	case count < len(sent):
		res.Err = outage(ReasonBatchLost, fmt.Errorf("the server stored %d of %d messages", count, len(sent)))
	}
	return res
}
