package publish

import "fmt"

// Kind says what an error is about.
type Kind int

const (
	// Outage is about the way to the stream, or the stream itself: wait and send again, for ever.
	Outage Kind = iota + 1
	// Refused is about this one event.
	Refused
)

// String is "outage" or "refused".
func (k Kind) String() string {
	switch k {
	case Outage:
		return "outage"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// Error is why a message was not stored, or not surely.
type Error struct {
	Kind      Kind
	Reason    string // one of the Reason constants: stable, short, fit for a metric's label
	Permanent bool   // only for Refused: the same event can never be stored, a retry cannot help
	Err       error  // the cause, without secrets and payloads; may be nil
}

// Error is the reason and its cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reasons of an Outage.
const (
	ReasonNotConnected  = "not_connected"
	ReasonTimeout       = "timeout"
	ReasonCanceled      = "canceled"
	ReasonNoResponders  = "no_responders" // nobody listens on the subject
	ReasonNoJetStream   = "no_jetstream"  // the servers, or the account, have none
	ReasonNoLeader      = "no_leader"
	ReasonStreamMissing = "stream_missing"
	ReasonStreamFull    = "stream_full"
	ReasonSubjectFull   = "subject_full" // the limit of messages per subject is reached, and the stream discards new ones
	ReasonSealed        = "sealed"
	ReasonNoAck         = "no_ack"
	ReasonMirror        = "mirror" // a mirror takes no messages
	ReasonNoResources   = "no_resources"
	ReasonBusy          = "busy"
	ReasonIDInFlight    = "id_in_flight"  // stored or not: the server does not know yet
	ReasonBatchLost     = "batch_lost"    // the server forgot the batch, as after a leader change
	ReasonNotJetStream  = "not_jetstream" // somebody else answers on the subject
	ReasonPermission    = "permission_denied"
	ReasonServer        = "server_error"
)

// Reasons of a Refused.
const (
	ReasonBadStream      = "bad_stream" // not a name that a stream can have
	ReasonBadSubject     = "bad_subject"
	ReasonBadHeaders     = "bad_headers"
	ReasonReservedHeader = "reserved_header"
	ReasonTooLarge       = "too_large"
	ReasonWrongStream    = "wrong_stream" // the stream does not have the topic
	ReasonRejected       = "rejected"     // by the server, for another reason
)

func outage(reason string, err error) *Error { return &Error{Kind: Outage, Reason: reason, Err: err} }

func refused(reason string, permanent bool, format string, args ...any) *Error {
	return &Error{Kind: Refused, Reason: reason, Permanent: permanent, Err: fmt.Errorf(format, args...)}
}
