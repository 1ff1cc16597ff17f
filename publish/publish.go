package publish

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Modes of publishing.
const (
	ModeFast = "fast"
	ModeSync = "sync"
)

// call is one Publish on its way.
type call struct {
	*Broker
	link   *link
	stream string
	info   *streamInfo
	began  time.Time
}

// Publish stores msgs in stream, in order. See the package's contract for what Result promises.
//
// It is fast where the stream allows batches (AllowBatchPublish, servers from 2.14 on), and one message at a time elsewhere. A message that
// this side finds impossible to store, or the server refuses, ends the call there.
func (b *Broker) Publish(ctx context.Context, stream string, msgs []Message) Result {
	if len(msgs) == 0 {
		return Result{}
	}
	if err := ValidateStreamName(stream); err != nil {
		return Result{Err: refused(ReasonBadStream, true, "stream: %w", err)}
	}
	c := &call{Broker: b, stream: stream, began: time.Now()}
	var total Result
	notBefore := c.began.Add(-refreshAfter)
	for {
		res, ofStream := c.attempt(ctx, notBefore, msgs[total.Stored:])
		total.Stored += res.Stored
		total.StreamSeq = max(total.StreamSeq, res.StreamSeq)
		total.Err = res.Err
		if total.Err == nil || !ofStream || !notBefore.Before(c.began) {
			break
		}
		notBefore = c.began // what is known of the stream stands in the way: once more, with what it is now
	}
	if total.Err != nil {
		total.Err = c.diagnose(ctx, total.Err, &msgs[total.Stored])
	}
	return total
}

// attempt publishes by what is known of the stream. ofStream says that the result may be wrong if that is old.
func (c *call) attempt(ctx context.Context, notBefore time.Time, msgs []Message) (res Result, ofStream bool) {
	var err *Error
	if c.link, err = c.connected(); err != nil {
		return Result{Err: err}, false
	}
	if c.info, err = c.streamInfo(ctx, c.link, c.stream, notBefore); err != nil {
		return Result{Err: err}, false
	}
	if c.info.blocked != nil {
		return Result{Err: c.info.blocked}, true
	}
	mode := c.mode()
	c.cache.entry(c.stream).mode.Store(&mode)
	if mode == ModeFast && len(msgs) > 1 {
		return c.fast(ctx, msgs)
	}
	return c.sync(ctx, msgs)
}

func (c *call) mode() string {
	if c.info.batches && c.link.batches {
		return ModeFast
	}
	return ModeSync
}

// Mode is ModeFast or ModeSync, how the stream was published to last; empty if it was not yet.
func (b *Broker) Mode(stream string) string {
	if mode := b.cache.entry(stream).mode.Load(); mode != nil {
		return *mode
	}
	return ""
}

// diagnose finds out what an answer that did not come, or says little, means; m is the message that was not stored.
func (c *call) diagnose(ctx context.Context, e *Error, m *Message) *Error {
	switch e.Reason {
	case ReasonWrongStream, ReasonStreamMissing:
		c.topics.forget(m.Topic)
	}
	switch e.Reason {
	case ReasonTimeout, ReasonNoResponders, ReasonBatchLost, ReasonNotJetStream, ReasonWrongStream, ReasonSealed:
	default:
		return e
	}
	select {
	case <-c.link.down:
		return e
	default:
	}
	c.hearOut()
	notBefore := time.Now()
	if e.Reason == ReasonWrongStream {
		notBefore = c.began
	}
	info, failed := c.streamInfo(ctx, c.link, c.stream, notBefore)
	switch {
	case failed != nil && failed.Reason != ReasonTimeout && failed.Reason != ReasonCanceled:
		return failed
	case failed != nil:
		return e
	case info.blocked != nil:
		return info.blocked
	case c.wasDenied(m.Topic, c.began):
		return outage(ReasonPermission, fmt.Errorf("the server does not let us publish to %s", quote(m.Topic)))
	case e.Kind == Outage && !info.has(m.Topic):
		return refused(ReasonWrongStream, false, "topic: the stream does not have %s any more", quote(m.Topic))
	case e.Reason == ReasonNoResponders:
		return outage(ReasonNoLeader, errors.New("the stream exists, but none of its servers takes messages"))
	}
	return e
}

// hearOut takes in what the server has said so far about subjects that it does not let us publish to: it says so beside the answers, and the
// client tells it later than them.
func (c *call) hearOut() {
	nc := c.link.nc
	if nc.FlushTimeout(c.cfg.AckTimeout) != nil {
		return
	}
	if err := nc.LastError(); err != nil {
		c.noteDenied(err)
	}
}

// wentDown is the error of a call whose connection was lost under it.
func (c *call) wentDown() *Error {
	if _, err := c.connected(); err != nil {
		return err
	}
	return outage(ReasonNotConnected, errDisconnected)
}

// sendError is the error of a message that the client did not take.
func (c *call) sendError(err error) *Error {
	e := classify(fmt.Errorf("send: %w", err))
	switch e.Reason {
	case ReasonNotConnected:
		return c.wentDown()
	case ReasonServer: // the socket
		return outage(ReasonNotConnected, e.Err)
	}
	return e
}

// flush returns when the server has read what was sent.
func (c *call) flush() { _ = c.link.nc.Flush() }

func contextError(ctx context.Context) *Error { return classify(ctx.Err()) }

func (c *call) newEncoder() *encoder {
	return newEncoder(c.stream, c.info, int(c.link.nc.MaxPayload()))
}
