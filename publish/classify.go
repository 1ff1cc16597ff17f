package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rule says what an answer of the server, by its code, or an error of the client means.
type rule struct {
	code      int    // the server's error code
	text      string // with a code: only if the description has it
	err       error  // instead of a code
	kind      Kind
	reason    string
	permanent bool
}

// codeBatchDisabled says that the stream allows no fast batches any more.
const codeBatchDisabled = 10205

// rules is the one place where errors are told apart. The first that fits decides.
var rules = []rule{
	{code: 10002, kind: Outage, reason: ReasonNoResources}, // account limits
	{code: 10023, kind: Outage, reason: ReasonNoResources},
	{code: 10028, kind: Outage, reason: ReasonNoResources}, // memory
	{code: 10047, kind: Outage, reason: ReasonNoResources}, // storage
	{code: 10006, kind: Outage, reason: ReasonNoLeader},
	{code: 10007, kind: Outage, reason: ReasonNoLeader},
	{code: 10008, kind: Outage, reason: ReasonNoLeader},
	{code: 10009, kind: Outage, reason: ReasonNoLeader},
	{code: 10118, kind: Outage, reason: ReasonNoLeader}, // offline
	{code: 10194, kind: Outage, reason: ReasonNoLeader}, // offline, with why
	{code: 10039, kind: Outage, reason: ReasonNoJetStream},
	{code: 10076, kind: Outage, reason: ReasonNoJetStream},
	{code: 10059, kind: Outage, reason: ReasonStreamMissing},
	{code: 10109, kind: Outage, reason: ReasonSealed},
	{code: 10158, kind: Outage, reason: ReasonIDInFlight},
	{code: 10167, kind: Outage, reason: ReasonBusy},
	{code: 10211, kind: Outage, reason: ReasonBusy}, // too many batches
	{code: codeBatchDisabled, kind: Outage, reason: ReasonBatchLost},
	{code: 10208, kind: Outage, reason: ReasonBatchLost},
	{code: 10077, text: "messages per subject", kind: Outage, reason: ReasonSubjectFull},
	{code: 10077, text: "maximum messages", kind: Outage, reason: ReasonStreamFull},
	{code: 10077, text: "maximum bytes", kind: Outage, reason: ReasonStreamFull},
	{code: 10077, text: "message to large", kind: Refused, reason: ReasonTooLarge, permanent: true}, // the server's spelling
	{code: 10077, kind: Outage, reason: ReasonServer},
	{code: 10054, kind: Refused, reason: ReasonTooLarge, permanent: true},
	{code: 10097, kind: Refused, reason: ReasonTooLarge, permanent: true}, // headers
	{code: 10060, kind: Refused, reason: ReasonWrongStream},

	{err: context.Canceled, kind: Outage, reason: ReasonCanceled},
	{err: context.DeadlineExceeded, kind: Outage, reason: ReasonTimeout},
	{err: nats.ErrTimeout, kind: Outage, reason: ReasonTimeout},
	{err: nats.ErrNoResponders, kind: Outage, reason: ReasonNoResponders},
	{err: nats.ErrConnectionClosed, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrConnectionDraining, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrConnectionReconnecting, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrReconnectBufExceeded, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrDisconnected, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrInvalidConnection, kind: Outage, reason: ReasonNotConnected},
	{err: nats.ErrPermissionViolation, kind: Outage, reason: ReasonPermission},
	{err: nats.ErrMaxPayload, kind: Refused, reason: ReasonTooLarge, permanent: true},
	{err: nats.ErrBadSubject, kind: Refused, reason: ReasonBadSubject, permanent: true},
	{err: nats.ErrBadHeaderMsg, kind: Refused, reason: ReasonBadHeaders, permanent: true},
	{err: jetstream.ErrInvalidStreamName, kind: Refused, reason: ReasonBadStream, permanent: true},
}

// apiError is the error in an answer of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error is the server's description and code.
func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// classify says what an error means. An answer that no rule knows is about the event if the server says that the request was at fault, and
// an outage otherwise; so is any other error.
func classify(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	api := asAPIError(err)
	for _, r := range rules {
		fits := api == nil && r.err != nil && errors.Is(err, r.err) ||
			api != nil && r.code == api.ErrCode && r.code != 0 && strings.Contains(api.Description, r.text)
		if fits {
			return &Error{Kind: r.kind, Reason: r.reason, Permanent: r.permanent, Err: err}
		}
	}
	if api != nil && api.Code >= 400 && api.Code < 500 {
		return &Error{Kind: Refused, Reason: ReasonRejected, Err: err}
	}
	return outage(ReasonServer, err)
}

func asAPIError(err error) *apiError {
	var own *apiError
	if errors.As(err, &own) {
		return own
	}
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		e := js.APIError()
		return &apiError{Code: e.Code, ErrCode: int(e.ErrorCode), Description: e.Description}
	}
	return nil
}
