package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// refreshAfter is how long what is known of a stream is believed without a reason to doubt it.
	refreshAfter = 30 * time.Second
	// infoTimeout bounds one question about a stream.
	infoTimeout = 2 * time.Second
)

// streamInfo is what publishing needs to know of a stream.
type streamInfo struct {
	subjects   []string
	maxMsgSize int    // of headers and data together; -1 is no limit
	batches    bool   // the stream takes fast batches
	blocked    *Error // why the stream takes nothing at all; nil if it does
	at         time.Time
}

func newStreamInfo(c jetstream.StreamConfig, at time.Time) *streamInfo {
	info := &streamInfo{subjects: c.Subjects, maxMsgSize: int(c.MaxMsgSize), batches: c.AllowBatchPublish, at: at}
	switch {
	case c.Mirror != nil:
		info.blocked = outage(ReasonMirror, errors.New("the stream is a mirror of another"))
	case c.Sealed:
		info.blocked = outage(ReasonSealed, errors.New("the stream is sealed"))
	case c.NoAck:
		info.blocked = outage(ReasonNoAck, errors.New("the stream never acknowledges"))
	}
	return info
}

func (i *streamInfo) has(topic string) bool {
	for _, pattern := range i.subjects {
		if MatchTopic(pattern, topic) {
			return true
		}
	}
	return false
}

// streamCache holds what is known of streams, by name.
type streamCache struct{ entries sync.Map }

type streamEntry struct {
	mode atomic.Pointer[string]

	mu       sync.Mutex // held while the server is asked
	info     *streamInfo
	failed   *Error // what the last question came to, if not to an answer
	failedAt time.Time
}

func (c *streamCache) entry(name string) *streamEntry {
	if e, ok := c.entries.Load(name); ok {
		return e.(*streamEntry)
	}
	e, _ := c.entries.LoadOrStore(name, &streamEntry{})
	return e.(*streamEntry)
}

// streamInfo is what is known of a stream since notBefore, or else what the server says now. What was known is good enough when the server does
// not answer.
func (b *Broker) streamInfo(ctx context.Context, l *link, name string, notBefore time.Time) (*streamInfo, *Error) {
	e := b.cache.entry(name)
	came := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.info != nil && !e.info.at.Before(notBefore) {
		return e.info, nil
	}
	if e.failed != nil && e.failedAt.After(came) {
		return nil, e.failed // who waited for another's question shares its failure
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(infoTimeout, b.cfg.AckTimeout))
	defer cancel()
	stream, err := l.js.Stream(ctx, name)
	if err == nil {
		e.info, e.failed = newStreamInfo(stream.CachedInfo().Config, asked), nil
		return e.info, nil
	}
	failed := b.infoError(name, asked, err)
	if failed.Reason == ReasonStreamMissing || e.info == nil {
		e.info, e.failed, e.failedAt = nil, failed, time.Now()
		return nil, failed
	}
	known := *e.info
	known.at = asked
	e.info = &known
	return e.info, nil
}

// LastSeq is the last sequence that a stream gave, now. A stream that was made anew, or restored, gives less than it gave before. Its error is an
// *Error.
func (b *Broker) LastSeq(ctx context.Context, stream string) (uint64, error) {
	l, failed := b.connected()
	if failed != nil {
		return 0, failed
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(infoTimeout, b.cfg.AckTimeout))
	defer cancel()
	s, err := l.js.Stream(ctx, stream)
	if err != nil {
		return 0, b.infoError(stream, asked, err)
	}
	return s.CachedInfo().State.LastSeq, nil
}

func (b *Broker) infoError(name string, asked time.Time, err error) *Error {
	return b.apiError("STREAM.INFO."+name, "ask for the stream "+quote(name), asked, err)
}

// apiError is why a question to JetStream's API failed. It is about the question, not about an event: it is never a refusal of one.
func (b *Broker) apiError(request, what string, asked time.Time, err error) *Error {
	reason := classify(err).Reason
	switch {
	case b.wasDenied(apiPrefix+request, asked):
		reason = ReasonPermission
	case reason == ReasonNoResponders:
		reason = ReasonNoJetStream
	case classify(err).Kind == Refused:
		reason = ReasonServer
	}
	return outage(reason, fmt.Errorf("%s: %w", what, err))
}

const apiPrefix = "$JS.API."

// topicCache remembers which stream has a topic.
type topicCache struct {
	mu      sync.Mutex
	streams map[string]topicEntry
}

type topicEntry struct {
	stream string
	at     time.Time
}

// maxTopics bounds the memory of topicCache.
const maxTopics = 10000

func (c *topicCache) get(topic string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.streams[topic]; ok && time.Since(e.at) < refreshAfter {
		return e.stream
	}
	return ""
}

func (c *topicCache) put(topic, stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil || len(c.streams) >= maxTopics {
		c.streams = make(map[string]topicEntry)
	}
	c.streams[topic] = topicEntry{stream, time.Now()}
}

func (c *topicCache) forget(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, topic)
}

// StreamForTopic is the stream whose subjects have topic. An error is an *Error: of Kind Outage and ReasonStreamMissing if there is none now, of
// Kind Refused if no stream can have the topic.
func (b *Broker) StreamForTopic(ctx context.Context, topic string) (string, error) {
	if err := ValidateTopic(topic); err != nil {
		return "", refused(ReasonBadSubject, true, "topic: %w", err)
	}
	if stream := b.topics.get(topic); stream != "" {
		return stream, nil
	}
	l, down := b.connected()
	if down != nil {
		return "", down
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(infoTimeout, b.cfg.AckTimeout))
	defer cancel()
	stream, err := l.js.StreamNameBySubject(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", outage(ReasonStreamMissing, fmt.Errorf("no stream has the topic %s", quote(topic)))
	}
	if err != nil {
		return "", b.apiError("STREAM.NAMES", "ask for the stream of a topic", asked, err)
	}
	b.topics.put(topic, stream)
	return stream, nil
}
