package publish

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	api := func(code, errCode int, text string) error {
		return fmt.Errorf("asked: %w", &apiError{Code: code, ErrCode: errCode, Description: text})
	}
	cases := []struct {
		err       error
		kind      Kind
		reason    string
		permanent bool
	}{
		{api(503, 10023, "insufficient resources"), Outage, ReasonNoResources, false},
		{api(400, 10002, "resource limits exceeded for account"), Outage, ReasonNoResources, false},
		{api(500, 10028, "insufficient memory resources available"), Outage, ReasonNoResources, false},
		{api(500, 10047, "insufficient storage resources available"), Outage, ReasonNoResources, false},
		{api(500, 10006, "cluster not active"), Outage, ReasonNoLeader, false},
		{api(500, 10007, "JetStream cluster not assigned to this server"), Outage, ReasonNoLeader, false},
		{api(503, 10008, "JetStream system temporarily unavailable"), Outage, ReasonNoLeader, false},
		{api(500, 10009, "JetStream cluster can not handle request"), Outage, ReasonNoLeader, false},
		{api(500, 10118, "stream is offline"), Outage, ReasonNoLeader, false},
		{api(500, 10194, "stream is offline: why"), Outage, ReasonNoLeader, false},
		{api(503, 10039, "jetstream not enabled for account"), Outage, ReasonNoJetStream, false},
		{api(503, 10076, "jetstream not enabled"), Outage, ReasonNoJetStream, false},
		{api(404, 10059, "stream not found"), Outage, ReasonStreamMissing, false},
		{api(400, 10109, "invalid operation on sealed stream"), Outage, ReasonSealed, false},
		{api(409, 10158, "duplicate message id is in process"), Outage, ReasonIDInFlight, false},
		{api(429, 10167, "too many requests"), Outage, ReasonBusy, false},
		{api(429, 10211, "batch publish too many inflight"), Outage, ReasonBusy, false},
		{api(400, 10205, "batch publish is disabled"), Outage, ReasonBatchLost, false},
		{api(400, 10208, "batch publish ID is unknown"), Outage, ReasonBatchLost, false},
		{api(503, 10077, "maximum messages per subject exceeded"), Outage, ReasonSubjectFull, false},
		{api(503, 10077, "maximum messages exceeded"), Outage, ReasonStreamFull, false},
		{api(503, 10077, "maximum bytes exceeded"), Outage, ReasonStreamFull, false},
		{api(503, 10077, "message to large"), Refused, ReasonTooLarge, true},
		{api(503, 10077, "disk is on fire"), Outage, ReasonServer, false},
		{api(400, 10054, "message size exceeds maximum allowed"), Refused, ReasonTooLarge, true},
		{api(400, 10097, "header size exceeds maximum allowed of 64k"), Refused, ReasonTooLarge, true},
		{api(400, 10060, "expected stream does not match"), Refused, ReasonWrongStream, false},
		{api(400, 10071, "wrong last sequence: 5"), Refused, ReasonRejected, false},
		{api(400, 19999, "a new rule"), Refused, ReasonRejected, false},
		{api(500, 19999, "a new trouble"), Outage, ReasonServer, false},
		{api(0, 0, ""), Outage, ReasonServer, false},

		{context.Canceled, Outage, ReasonCanceled, false},
		{context.DeadlineExceeded, Outage, ReasonTimeout, false},
		{nats.ErrTimeout, Outage, ReasonTimeout, false},
		{nats.ErrNoResponders, Outage, ReasonNoResponders, false},
		{nats.ErrConnectionClosed, Outage, ReasonNotConnected, false},
		{nats.ErrConnectionDraining, Outage, ReasonNotConnected, false},
		{nats.ErrConnectionReconnecting, Outage, ReasonNotConnected, false},
		{nats.ErrReconnectBufExceeded, Outage, ReasonNotConnected, false},
		{nats.ErrDisconnected, Outage, ReasonNotConnected, false},
		{nats.ErrInvalidConnection, Outage, ReasonNotConnected, false},
		{nats.ErrPermissionViolation, Outage, ReasonPermission, false},
		{nats.ErrMaxPayload, Refused, ReasonTooLarge, true},
		{nats.ErrBadSubject, Refused, ReasonBadSubject, true},
		{nats.ErrBadHeaderMsg, Refused, ReasonBadHeaders, true},
		{fmt.Errorf("%w: %q", jetstream.ErrInvalidStreamName, "a.b"), Refused, ReasonBadStream, true},
		{jetstream.ErrStreamNotFound, Outage, ReasonStreamMissing, false},
		{jetstream.ErrJetStreamNotEnabled, Outage, ReasonNoJetStream, false},
		{errors.New("anything else"), Outage, ReasonServer, false},
		{refused(ReasonBadSubject, true, "kept"), Refused, ReasonBadSubject, true},
	}
	used := make(map[int]bool)
	for _, c := range cases {
		got := classify(c.err)
		require.Equal(t, Error{Kind: c.kind, Reason: c.reason, Permanent: c.permanent, Err: got.Err}, *got, "%v", c.err)
		require.ErrorIs(t, got, c.err)
		for i, r := range rules {
			if r.kind == c.kind && r.reason == c.reason && r.permanent == c.permanent {
				used[i] = true
			}
		}
	}
	require.Len(t, used, len(rules), "a rule has no case")
	for _, r := range rules {
		require.False(t, r.permanent && r.kind == Outage, "an outage is never permanent: %v", r)
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	require.Equal(t, "timeout", outage(ReasonTimeout, nil).Error())
	require.Equal(t, "bad_subject: topic: no", refused(ReasonBadSubject, true, "topic: %s", "no").Error())
	require.Equal(t, []string{"outage", "refused", "unknown"}, []string{Outage.String(), Refused.String(), Kind(0).String()})
	require.Equal(t, "stream not found (10059)", (&apiError{ErrCode: 10059, Description: "stream not found"}).Error())
}
