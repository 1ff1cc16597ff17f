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
	Err       error  // the cause, without secrets and payloads
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

// Reasons of an Error.
const (
	ReasonNotConnected   = "not_connected"
	ReasonTimeout        = "timeout"
	ReasonNoResponders   = "no_responders"
	ReasonNoLeader       = "no_leader"
	ReasonStreamMissing  = "stream_missing"
	ReasonStreamFull     = "stream_full"
	ReasonSubjectFull    = "subject_full" // max-msgs-per-subject with discard new
	ReasonSealed         = "sealed"
	ReasonNoAck          = "no_ack"
	ReasonResources      = "no_resources"
	ReasonBusy           = "busy"
	ReasonIDInFlight     = "id_in_flight"
	ReasonBatchLost      = "batch_lost"
	ReasonNotJetStream   = "not_jetstream"
	ReasonPermission     = "permission_denied"
	ReasonCanceled       = "canceled"
	ReasonServer         = "server_error"
	ReasonBadSubject     = "bad_subject"
	ReasonBadHeaders     = "bad_headers"
	ReasonReservedHeader = "reserved_header"
	ReasonBadID          = "bad_id"
	ReasonTooLarge       = "too_large"
	ReasonWrongStream    = "wrong_stream"
	ReasonRejected       = "rejected"
)
