package publish

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Config is how a Broker reaches its servers.
type Config struct {
	URL      string // one or more server addresses, comma separated
	Name     string // the connection's name, seen by the server's operator
	Username string
	Password string
	Token    string
	// Files are read again at every connection attempt, so that rotated ones are picked up.
	PasswordFile string
	TokenFile    string
	CredsFile    string
	NKeyFile     string // file with an nkey seed
	TLSCAFile    string
	TLSCertFile  string
	TLSKeyFile   string

	AckTimeout         time.Duration // how long one answer may take before the server is asked again; 5 s if zero
	MinDuplicateWindow time.Duration // Preflight refuses streams whose duplicate window is shorter; no check if zero

	Logger *slog.Logger // nothing is logged if nil
	// OnState is called at each change of the connection's state, one call at a time, in order. It must not block.
	OnState func(connected bool, reason string)
}

// Broker is a connection to the servers. It is made by Connect.
type Broker struct{}

var errNotBuilt = errors.New("publisher is not built yet")

// Connect returns at once, whether a server answers or not, and goes on trying for ever. Its errors are about the configuration.
func Connect(cfg Config) (*Broker, error) { return &Broker{}, nil }

// Close ends the connection. Calls that are under way return with an outage.
func (b *Broker) Close() {}

// Connected says whether a server answers now, and if not, why.
func (b *Broker) Connected() (bool, string) { return false, errNotBuilt.Error() }

// WaitConnected returns nil once a server answers, or an error that says why none did when ctx ends.
func (b *Broker) WaitConnected(ctx context.Context) error { return errNotBuilt }

// Publish stores msgs in stream, in order. See the package's contract for what Result promises.
func (b *Broker) Publish(ctx context.Context, stream string, msgs []Message) Result {
	return Result{Err: &Error{Kind: Outage, Reason: ReasonNotConnected, Err: errNotBuilt}}
}

// StreamForTopic is the stream whose subjects have topic. Its error is an *Error: ReasonStreamMissing if there is none.
func (b *Broker) StreamForTopic(ctx context.Context, topic string) (string, error) {
	return "", &Error{Kind: Outage, Reason: ReasonNotConnected, Err: errNotBuilt}
}

// Mode is "fast" or "sync", how the stream was published to last; empty if it was not yet.
func (b *Broker) Mode(stream string) string { return "" }

// Preflight says by a *PreflightError what would keep events with these topic patterns from being stored in stream, and the mend;
// by an *Error if the servers cannot be asked.
func (b *Broker) Preflight(ctx context.Context, stream string, topics []string) error {
	return &Error{Kind: Outage, Reason: ReasonNotConnected, Err: errNotBuilt}
}

// PreflightError is a reason why a stream cannot take events, and what to do about it.
type PreflightError struct {
	Stream  string
	Reason  string // one of the Reason constants
	Problem string // what is wrong
	Mend    string // what to change: a command or a setting
}

// Error names the stream, the problem and the mend.
func (e *PreflightError) Error() string { return e.Stream + ": " + e.Problem + ": " + e.Mend }
