package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// PreflightError is a reason why a stream cannot take events, and what to do about it.
type PreflightError struct {
	Stream  string
	Reason  string // one of the Reason constants, or ReasonDuplicateWindow
	Problem string // what is wrong
	Mend    string // what to change: a command or a setting
}

// ReasonDuplicateWindow is a PreflightError's: a resend could be stored twice.
const ReasonDuplicateWindow = "duplicate_window"

// Error names the stream, the problem and the mend.
func (e *PreflightError) Error() string {
	return fmt.Sprintf("stream %s %s; %s", e.Stream, e.Problem, e.Mend)
}

// Preflight says by a *PreflightError what would keep events with these topic patterns from being stored in stream, and the mend;
// by an *Error if the servers cannot be asked.
func (b *Broker) Preflight(ctx context.Context, stream string, topics []string) error {
	if err := ValidateStreamName(stream); err != nil {
		return &PreflightError{quote(stream), ReasonBadStream, "cannot exist: the name is not valid: " + err.Error(), "give the stream another name"}
	}
	l, down := b.connected()
	if down != nil {
		return down
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.AckTimeout)
	defer cancel()
	asked := time.Now()
	s, err := l.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return &PreflightError{stream, ReasonStreamMissing, "is missing",
			"add it to the configuration's streams and run: outlane streams apply"}
	}
	if err != nil {
		return b.infoError(stream, asked, err)
	}
	if found := b.examine(s.CachedInfo().Config, topics); found != nil {
		found.Stream = stream
		return found
	}
	return nil
}

func (b *Broker) examine(c jetstream.StreamConfig, topics []string) *PreflightError {
	switch {
	case c.Mirror != nil:
		return &PreflightError{Reason: ReasonMirror, Problem: "is a mirror of " + c.Mirror.Name + " and takes no messages",
			Mend: "route its topics to " + c.Mirror.Name}
	case c.Sealed:
		return &PreflightError{Reason: ReasonSealed, Problem: "is sealed, which cannot be undone",
			Mend: "route its topics to another stream"}
	case c.NoAck:
		return &PreflightError{Reason: ReasonNoAck, Problem: "never acknowledges, so nobody would know what it stored",
			Mend: "run: nats stream edit " + c.Name + " --ack"}
	case c.AllowMsgCounter:
		return &PreflightError{Reason: ReasonRejected, Problem: "takes counters only",
			Mend: "route its topics to another stream"}
	}
	if missing := uncovered(c.Subjects, topics); len(missing) > 0 {
		return &PreflightError{Reason: ReasonWrongStream,
			Problem: fmt.Sprintf("does not have %s; it has %s", quoteAll(missing), quoteAll(c.Subjects)),
			Mend:    "add the subjects to the stream's configuration and run: outlane streams apply --update"}
	}
	if want := b.cfg.MinDuplicateWindow; c.Duplicates < want {
		return &PreflightError{Reason: ReasonDuplicateWindow,
			Problem: fmt.Sprintf("forgets message ids after %s, but a resend can take %s", c.Duplicates, want),
			Mend:    fmt.Sprintf("set its duplicateWindow to %s or more and run: outlane streams apply --update", want)}
	}
	return nil
}

func uncovered(subjects, topics []string) []string {
	var missing []string
	for _, topic := range topics {
		found := false
		for _, subject := range subjects {
			found = found || covers(subject, topic)
		}
		if !found {
			missing = append(missing, topic)
		}
	}
	return missing
}

func quoteAll(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	return strings.Join(quoted, ", ")
}
