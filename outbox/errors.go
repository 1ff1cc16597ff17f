package outbox

import (
	"errors"
	"fmt"
)

// What a ValidationError is about, for errors.Is.
var (
	ErrID             = errors.New("invalid id")
	ErrStream         = errors.New("invalid stream")
	ErrTopic          = errors.New("invalid topic")
	ErrKey            = errors.New("invalid key")
	ErrPayload        = errors.New("invalid payload")
	ErrContentType    = errors.New("invalid content type")
	ErrHeader         = errors.New("invalid header")
	ErrReservedHeader = errors.New("reserved header")
	ErrTooLarge       = errors.New("event too large")
)

// ErrNoTransaction is returned by EnqueueSQL for a *sql.DB: the event would be committed whatever becomes of the business change.
var ErrNoTransaction = errors.New("not a transaction")

// ValidationError says which event of a call is refused, and why. Nothing of the call was sent to the database. It wraps one of the errors
// above.
type ValidationError struct {
	Index  int    // position of the event in the call, from 0
	Field  string // field of Event, such as "Topic" or `Headers["Nats-Rollup"]`
	Reason string // what is wrong with it, for a person

	kind error
}

// Error implements error.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("event %d: %s %s", e.Index, e.Field, e.Reason)
}

// Unwrap returns one of the package's Err values.
func (e *ValidationError) Unwrap() error { return e.kind }
