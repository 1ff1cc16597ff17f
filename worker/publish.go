package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// publish sends one batch of l. It runs in its own goroutine; l.publishing keeps it the only one of its lane.
func (w *Worker) publish(l *lane) {
	ctx := w.work
	w.mu.Lock()
	if l.part.state != partActive || len(l.queue) == 0 {
		w.endPublish(l, 0, nil)
		w.mu.Unlock()
		return
	}
	events := l.take(w.cfg.BatchEvents, w.cfg.BatchBytes)
	verified := l.part.verified
	w.mu.Unlock()

	settled, err := w.deliver(ctx, l, events, verified)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.endPublish(l, settled, err)
}

// deliver sends events and says how many of them, from the first, are settled or on their way to their mark, and what stopped it.
func (w *Worker) deliver(ctx context.Context, l *lane, events []store.Event, verified time.Time) (int, error) {
	if time.Since(verified) > w.cfg.LeaseDuration/2 || w.routes.blocks() {
		if err := w.verify(ctx, l.part); err != nil {
			return 0, err
		}
	}
	n, parked := w.leadingRun(l, events)
	if parked {
		if err := w.cfg.Database.Park(ctx, l.part.epoch, l.id, events[:n]); err != nil {
			return 0, err
		}
		crash.At(crash.Parked)
		w.cfg.Metrics.parkedEvents.WithLabelValues(l.id.Stream).Add(float64(n))
		return n, nil
	}
	events = events[:n]

	name, n, err := w.resolve(ctx, l, events)
	if err != nil {
		var pub *publish.Error
		if errors.As(err, &pub) && pub.Kind == publish.Refused {
			return w.refused(ctx, l, events, publish.Result{Err: pub})
		}
		return 0, err
	}
	events = events[:n]
	if err := publish.ValidateStreamName(name); err != nil {
		return w.refused(ctx, l, events, publish.Result{Err: &publish.Error{Kind: publish.Refused, Reason: publish.ReasonBadStream, Permanent: true,
			Err: fmt.Errorf("stream: %w", err)}})
	}
	if err := w.preflight(ctx, l, name); err != nil {
		return 0, err
	}

	msgs := make([]publish.Message, len(events))
	for i, e := range events {
		msgs[i] = publish.Message{ID: e.ID, Topic: e.Topic, Key: e.Key, Seq: e.Seq, Partition: e.Partition,
			Headers: e.Headers, ContentType: e.ContentType, Data: e.Payload, TooLarge: e.TooLarge}
	}
	crash.At(crash.Checked)
	began := time.Now()
	res := w.cfg.Broker.Publish(ctx, name, msgs)
	took := time.Since(began)
	if res.Stored > 0 {
		crash.At(crash.Acknowledged)
		w.published(l, name, events[:res.Stored], res.StreamSeq, took)
	}
	if res.Err == nil {
		return len(events), nil
	}
	w.cfg.Metrics.publishErrors.WithLabelValues(name, res.Err.Kind.String(), res.Err.Reason).Inc()
	if res.Err.Kind != publish.Refused {
		return res.Stored, res.Err
	}
	return w.refused(ctx, l, events, res)
}

// published hands stored events to the markers.
func (w *Worker) published(l *lane, name string, events []store.Event, streamSeq uint64, took time.Duration) {
	m := &markBatch{lane: l, epoch: l.part.epoch, ids: make([]string, len(events)), places: make([]store.Place, len(events)), low: events[0].Seq}
	now := time.Now()
	for i, e := range events {
		m.ids[i], m.places[i] = e.ID, e.Place
		m.low = min(m.low, e.Seq)
		if !e.CreatedAt.IsZero() {
			w.cfg.Metrics.eventAge.WithLabelValues(name).Observe(max(now.Sub(e.CreatedAt).Seconds(), 0))
		}
	}
	w.cfg.Metrics.publishSeconds.WithLabelValues(name).Observe(took.Seconds())
	w.cfg.Metrics.batchEvents.Observe(float64(len(events)))
	w.cfg.Metrics.events.WithLabelValues(name).Add(float64(len(events)))
	w.delivered[l.part.n].Add(uint64(len(events)))

	w.mu.Lock()
	defer w.mu.Unlock()
	l.streamSeq = max(l.streamSeq, int64(streamSeq))
	l.failures = 0
	if l.stream.down {
		w.streamUp(l.stream)
	}
	w.setState(l, "", "")
	if l.part.state == partStopped {
		return
	}
	w.queueMark(m)
}

// refused deals with the event that its stream will not take: another try later, or a dead letter.
func (w *Worker) refused(ctx context.Context, l *lane, events []store.Event, res publish.Result) (int, error) {
	w.mu.Lock()
	if l.stream.down {
		w.streamUp(l.stream) // it answers
	}
	w.mu.Unlock()
	e := events[res.Stored]
	attempts := e.Attempts + 1
	route := w.routes.match(e.Topic)
	if !res.Err.Permanent && attempts < route.MaxAttempts {
		if err := w.cfg.Database.Attempt(ctx, l.id.Partition, l.part.epoch, e.ID, attempts, res.Err.Error()); err != nil {
			return res.Stored, err
		}
		w.cfg.Metrics.retries.WithLabelValues(l.id.Stream).Inc()
		return res.Stored, &refusal{event: e, attempts: attempts, err: res.Err}
	}
	crash.At(crash.GivingUp)
	err := w.cfg.Database.DeadLetter(ctx, store.DeadLetter{Event: e, Epoch: l.part.epoch, Reason: res.Err.Reason, Error: res.Err.Error(),
		Attempts: attempts, Block: route.Block})
	if err != nil {
		if route.Block && !errors.Is(err, store.ErrFenced) {
			w.doubt(l.part)
		}
		return res.Stored, err
	}
	crash.At(crash.GaveUp)
	w.cfg.Metrics.deadLetters.WithLabelValues(l.id.Stream, res.Err.Reason).Inc()
	w.log.Warn("event is a dead letter", "event", e.ID, "seq", e.Seq, "stream", l.id.Stream, "partition", l.id.Partition, "topic", e.Topic,
		"attempts", attempts, "reason", res.Err.Reason, "error", res.Err.Err, "blocks_key", route.Block)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setState(l, "", "") // the lane does not wait for it any more
	if route.Block {
		if l.parked == nil {
			l.parked = make(map[string]struct{})
		}
		l.parked[e.Key] = struct{}{}
	}
	return res.Stored + 1, nil
}

// refusal is an event's refusal that is tried again.
type refusal struct {
	event    store.Event
	attempts int
	err      *publish.Error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// endPublish takes the end of a batch: the first settled events are done with, err says why the rest is not.
func (w *Worker) endPublish(l *lane, settled int, err error) {
	rest := l.sending[settled:]
	w.putBack(l, rest)
	l.publishing = false
	s := l.stream
	s.running--
	if err != nil && l.part.state == partActive {
		w.publishFailed(l, err)
	}
	if l.part.state != partActive || err != nil {
		w.rewind(l)
	}
	w.settleBusy(l.part)
	w.kick(l)
	w.endProbe(l)
	w.feedHungry()
	w.pump(s)
}

// publishFailed decides what an error means for l and its stream.
func (w *Worker) publishFailed(l *lane, err error) {
	var pub *publish.Error
	var refused *refusal
	var pre *publish.PreflightError
	switch {
	case errors.Is(err, store.ErrFenced):
		w.fence(l.part)
		return
	case errors.As(err, &refused):
		w.setState(l, refused.err.Reason, "event "+refused.event.ID+" is refused: "+refused.Error())
		w.retryLater(l, backoff(refused.attempts))
		return
	case errors.As(err, &pre):
		w.outage(l, pre.Reason, pre)
	case errors.As(err, &pub):
		w.outage(l, pub.Reason, pub)
	case w.work.Err() != nil:
	default:
		l.failures++
		w.databaseFailed("decide", err)
		w.setState(l, "database_failing", err.Error())
		w.retryLater(l, retryDelay(l.failures))
		return
	}
}

// outage makes l wait, or its whole stream.
func (w *Worker) outage(l *lane, reason string, err error) {
	if l.id.Stream != "" && concernsStream(reason) {
		w.streamDown(l.stream, reason, err)
		w.setState(l, reason, err.Error())
		return
	}
	w.setState(l, reason, err.Error())
	l.failures++
	w.retryLater(l, backoff(l.failures))
}

// streamDown makes a whole stream wait: its lanes give their memory back, and after the backoff one of them tries for all.
func (w *Worker) streamDown(s *stream, reason string, err error) {
	s.checked = false
	s.failures++
	if !s.down {
		s.down = true
		w.log.Warn("stream does not take events; its lanes wait", "stream", s.name, "reason", reason, "error", err)
	}
	s.reason, s.detail = reason, err.Error()
	w.cfg.Metrics.streamUp.WithLabelValues(s.name).Set(0)
	w.eachLane(s, func(l *lane) {
		if !l.publishing && !l.fetching {
			if len(l.queue) > 0 || w.behind(l) {
				w.setState(l, s.reason, s.detail)
			}
			w.rewind(l)
		}
	})
	wait := backoff(s.failures)
	s.retryAt = time.Now().Add(wait)
	time.AfterFunc(wait, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.eachLane(s, w.kick)
	})
}

// noteEmpty ends l's wait if nothing is left that could wait: somebody has deleted its events, or decided about them.
func (w *Worker) noteEmpty(l *lane) {
	if l.state.reason == "" || len(l.queue) > 0 || l.publishing || len(l.marking) > 0 || w.behind(l) {
		return
	}
	w.setState(l, "", "")
	w.noteUnwanted(l.stream)
}

// noteUnwanted ends the wait of a stream that none of our lanes waits for any more. Whether it takes events is found out by the next one.
func (w *Worker) noteUnwanted(s *stream) {
	if !s.down {
		return
	}
	wanted := false
	w.eachLane(s, func(l *lane) { wanted = wanted || l.state.reason != "" })
	if !wanted {
		w.log.Info("no lane waits for the stream any more", "stream", s.name, "reason", s.reason)
		w.cfg.Metrics.streamUp.WithLabelValues(s.name).Set(1)
		s.down, s.probe, s.failures, s.retryAt = false, nil, 0, time.Time{}
	}
}

// streamUp ends the stream's wait.
func (w *Worker) streamUp(s *stream) {
	w.log.Info("stream takes events again", "stream", s.name, "mode", w.cfg.Broker.Mode(s.name))
	w.cfg.Metrics.streamUp.WithLabelValues(s.name).Set(1)
	w.eachLane(s, func(l *lane) {
		if l.state.reason == s.reason {
			w.setState(l, "", "") // before the stream counts as up: its lanes' waits are not news one by one
		}
	})
	s.down, s.probe, s.failures, s.retryAt = false, nil, 0, time.Time{}
	w.eachLane(s, w.kick)
}

// BrokerChanged is to be called when the connection to NATS changes. A new connection ends the waits of all streams.
func (w *Worker) BrokerChanged(connected bool, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if connected == w.brokerUp {
		return
	}
	if w.brokerUp = connected; !connected {
		return
	}
	for _, s := range w.streams {
		s.failures, s.retryAt = 0, time.Time{}
		w.eachLane(s, w.kick)
	}
}

// concernsStream says whether a reason holds for every lane of a stream alike.
func concernsStream(reason string) bool {
	switch reason {
	case publish.ReasonIDInFlight, publish.ReasonBatchLost, publish.ReasonSubjectFull, publish.ReasonBusy, publish.ReasonCanceled,
		publish.ReasonPermission: // of one topic
		return false
	}
	return true
}

// leadingRun is how many events from the first share the fate of being parked, or of not being parked.
func (w *Worker) leadingRun(l *lane, events []store.Event) (n int, parked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(l.parked) == 0 {
		return len(events), false
	}
	_, parked = l.parked[events[0].Key]
	for n = 1; n < len(events); n++ {
		if _, p := l.parked[events[n].Key]; p != parked {
			break
		}
	}
	return n, parked
}

// resolve names the stream that events go to: the lane's, or for events without one, the stream that has the first one's topic, and how
// many of the following go there too.
func (w *Worker) resolve(ctx context.Context, l *lane, events []store.Event) (string, int, error) {
	if l.id.Stream != "" {
		return l.id.Stream, len(events), nil
	}
	var name string
	for i, e := range events {
		s := w.routes.match(e.Topic).Stream
		if s == "" {
			var err error
			if s, err = w.cfg.Broker.StreamForTopic(ctx, e.Topic); err != nil {
				if i == 0 {
					return "", 0, err
				}
				return name, i, nil
			}
		}
		if i > 0 && s != name {
			return name, i, nil
		}
		name = s
	}
	return name, len(events), nil
}

// preflight asks once, and again after each outage, whether the stream can take events at all.
func (w *Worker) preflight(ctx context.Context, l *lane, name string) error {
	w.mu.Lock()
	s := w.streamOf(name)
	if s.checked {
		w.mu.Unlock()
		return nil
	}
	known := w.acknowledged(s)
	w.mu.Unlock()
	if err := w.cfg.Broker.Preflight(ctx, name, nil); err != nil {
		return err
	}
	last, err := w.cfg.Broker.LastSeq(ctx, name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.checked = true
	w.noteLoss(s, known, int64(last))
	return nil
}

// acknowledged is the highest sequence that s is known to have given to one of our lanes.
func (w *Worker) acknowledged(s *stream) (known int64) {
	w.eachLane(s, func(l *lane) { known = max(known, l.streamSeq) })
	return known
}

// noteLoss says so when a stream is behind what it had acknowledged to our lanes before it was asked for its last sequence: it was made anew,
// restored or lost a replica's data. What it lost cannot be told from here, and is not sent again by itself.
func (w *Worker) noteLoss(s *stream, known, last int64) {
	if min(known, w.acknowledged(s)) <= last {
		return
	}
	w.cfg.Metrics.streamLosses.WithLabelValues(s.name).Inc()
	w.log.Error("stream has lost messages that it acknowledged; compare with outlane verify", "stream", s.name, "acknowledged", known, "last", last)
	w.eachLane(s, func(l *lane) { l.streamSeq = min(l.streamSeq, last) })
}

// verify asks the database whether p's epoch is still ours.
func (w *Worker) verify(ctx context.Context, p *part) error {
	began := time.Now()
	epochs, err := w.cfg.Database.Epochs(ctx, []int{p.n})
	if err != nil {
		return err
	}
	if epochs[p.n] != p.epoch {
		return store.ErrFenced
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.verified = began
	return nil
}
