package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/redact"
)

// Broker is a connection to the servers. It is made by Connect.
type Broker struct {
	cfg    Config
	log    *slog.Logger
	hide   *redact.Redactor
	inbox  *inbox
	cache  streamCache
	topics topicCache

	done chan struct{} // closed by Close
	over chan struct{} // closed when run has ended

	mu      sync.Mutex
	link    *link                // nil while there is no connection
	reason  string               // why there is none
	denied  map[string]time.Time // subjects that we may not publish to, and when the server last said so
	heard   error                // what it said last
	changed chan struct{}        // closed, and made anew, when link changes

	maxPayload int64

	stateMu sync.Mutex // taken before mu; held over OnState, so that calls have an order
	told    string     // what OnState was told last
}

// link is one unbroken spell of a connection.
type link struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	batches bool          // the server is new enough for fast batches
	down    chan struct{} // closed when the spell ends
}

var (
	errClosed       = errors.New("the broker is closed")
	errConnecting   = errors.New("no server has answered yet")
	errDisconnected = errors.New("the connection was lost")
	errNoAnswer     = errors.New("the server did not answer in time")
)

// Connect returns at once, whether a server answers or not, and the Broker goes on trying for ever. An error is about the configuration.
func Connect(cfg Config) (*Broker, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.options(); err != nil {
		return nil, err
	}
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = defaultAckTimeout
	}
	b := &Broker{
		cfg:     cfg,
		log:     cfg.Logger,
		hide:    redact.New(cfg.secrets()...),
		inbox:   newInbox(cfg.InboxPrefix),
		done:    make(chan struct{}),
		over:    make(chan struct{}),
		reason:  errConnecting.Error(),
		denied:  make(map[string]time.Time),
		changed: make(chan struct{}),

		maxPayload: unknownPayload,
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	go b.run()
	return b, nil
}

// Close ends the connection and waits until it has ended. Calls that are under way return with an outage.
func (b *Broker) Close() {
	b.mu.Lock()
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	b.mu.Unlock()
	<-b.over
}

// Connected says whether a server answers now, and if not, why.
func (b *Broker) Connected() (bool, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.link != nil, b.reason
}

// unknownPayload stands for the limit of a server that was never connected. None is built to take more.
const unknownPayload = 64 << 20

// MaxPayload is the most bytes that a message may have, headers included, by what the last server said.
func (b *Broker) MaxPayload() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.maxPayload
}

// WaitConnected returns nil once a server answers, or an error that says why none did when ctx ends.
func (b *Broker) WaitConnected(ctx context.Context) error {
	for {
		b.mu.Lock()
		connected, reason, changed := b.link != nil, b.reason, b.changed
		b.mu.Unlock()
		if connected {
			return nil
		}
		select {
		case <-changed:
		case <-b.done:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("connect to NATS: %s: %w", reason, ctx.Err())
		}
	}
}

// JetStream is the connection as it is now, for those who read streams. It fails with an *Error if there is none.
func (b *Broker) JetStream() (jetstream.JetStream, error) {
	l, err := b.connected()
	if err != nil {
		return nil, err
	}
	return l.js, nil
}

func (b *Broker) connected() (*link, *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return nil, outage(ReasonNotConnected, errors.New(b.reason))
	}
	return b.link, nil
}

// run keeps a connection. The client reconnects by itself for ever, but for a few refusals, such as credentials that were turned down twice,
// it closes itself; then everything is read again, and a new connection made.
func (b *Broker) run() {
	defer close(b.over)
	for {
		closed := make(chan struct{})
		nc, err := b.dial(closed)
		if err == nil {
			b.watch(nc, closed)
		} else {
			b.setDown(err)
		}
		pause := time.NewTimer(reconnectWait)
		select {
		case <-pause.C:
		case <-b.done:
			pause.Stop()
			b.setDown(errClosed)
			return
		}
	}
}

// watch returns when the connection is closed. Until then it looks for failures of which the client tells nobody, as of a TLS handshake.
func (b *Broker) watch(nc *nats.Conn, closed chan struct{}) {
	tick := time.NewTicker(reconnectWait)
	defer tick.Stop()
	for {
		select {
		case <-closed:
			return
		case <-b.done:
			nc.Close()
			<-closed
			return
		case <-tick.C:
			if err := nc.LastError(); err != nil && nc.IsReconnecting() {
				b.note(err)
			}
		}
	}
}

func (b *Broker) dial(closed chan struct{}) (*nats.Conn, error) {
	opts, err := b.cfg.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.ConnectHandler(b.setUp),
		nats.ReconnectHandler(b.setUp),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err == nil {
				err = errDisconnected
			}
			b.setDown(err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.setDown(err) }),
		nats.ErrorHandler(b.asyncError),
		nats.ClosedHandler(func(nc *nats.Conn) {
			err := nc.LastError()
			if err == nil {
				err = errDisconnected
			}
			b.setDown(err)
			close(closed)
		}),
	)
	nc, err := nats.Connect(strings.Join(b.cfg.addresses(), ","), opts...)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return nc, nil
}

// The handlers are called by one goroutine of the client, in order.
func (b *Broker) setUp(nc *nats.Conn) {
	if err := b.inbox.listen(nc); err != nil {
		b.setDown(err) // the connection is gone again: its handler follows
		return
	}
	js, err := jetstream.New(nc)
	if err != nil {
		b.setDown(err)
		return
	}
	l := &link{
		nc: nc, js: js, down: make(chan struct{}),
		batches: versionAtLeast(nc.ConnectedServerVersion(), 2, 14),
	}
	b.mu.Lock()
	b.maxPayload = nc.MaxPayload()
	b.mu.Unlock()
	b.become(l, "", "server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
}

func (b *Broker) setDown(err error) {
	select {
	case <-b.done:
		err = errClosed // whatever follows from Close
	default:
	}
	b.become(nil, b.reasonText(err))
}

// note is setDown for who does not know the order of things: it does not end a connection.
func (b *Broker) note(err error) {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	if up, _ := b.Connected(); !up {
		b.change(nil, b.reasonText(err))
	}
}

func (b *Broker) become(l *link, reason string, attrs ...any) {
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	b.change(l, reason, attrs...)
}

// change is called with stateMu held.
func (b *Broker) change(l *link, reason string, attrs ...any) {
	b.mu.Lock()
	if l == nil && b.link == nil && reason == errDisconnected.Error() {
		b.mu.Unlock() // says less than what is known
		return
	}
	if b.link != nil {
		close(b.link.down)
	}
	b.link, b.reason = l, reason
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()

	// An attempt that fails as the one before did is not news.
	state := fmt.Sprint(l != nil, reason)
	if state == b.told {
		return
	}
	b.told = state
	switch {
	case l != nil:
		b.log.Info("connected to NATS", attrs...)
	case reason == errClosed.Error():
		b.log.Info("closed the connection to NATS")
	default:
		b.log.Warn("no connection to NATS", "reason", reason)
	}
	if b.cfg.OnState != nil {
		b.cfg.OnState(l != nil, reason)
	}
}

// reasonText is short, without secrets, and the same for every server that fails in the same way.
func (b *Broker) reasonText(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, nats.ErrNoServers), strings.Contains(text, "connection refused"):
		return "connection refused"
	case strings.Contains(text, "i/o timeout"):
		return "connection timed out"
	case strings.Contains(text, "EOF"), strings.Contains(text, "connection reset"), errors.Is(err, errDisconnected):
		return errDisconnected.Error()
	}
	for _, known := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, known) { // the server's words and the client's differ
			text = known.Error()
		}
	}
	return b.hide.Text(strings.TrimPrefix(text, "nats: "))
}

var deniedSubject = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]*)"`)

// maxDenied bounds what is remembered of refused subjects.
const maxDenied = 1000

// asyncError notes why connecting fails, and the subjects that the server refuses to take from us.
func (b *Broker) asyncError(nc *nats.Conn, _ *nats.Subscription, err error) {
	if !b.noteDenied(err) && !nc.IsConnected() {
		b.setDown(err)
	}
}

// noteDenied remembers the subject that err says we may not publish to: the message itself gets no answer.
func (b *Broker) noteDenied(err error) bool {
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, b.heard) {
		return true // the client's last error, which stays its last
	}
	if len(b.denied) >= maxDenied {
		clear(b.denied)
	}
	b.denied[found[1]], b.heard = time.Now(), err
	return true
}

func (b *Broker) wasDenied(subject string, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.denied[subject]
	return ok && !at.Before(since)
}

func versionAtLeast(version string, major, minor int) bool {
	var gotMajor, gotMinor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &gotMajor, &gotMinor); n != 2 {
		return false
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}
