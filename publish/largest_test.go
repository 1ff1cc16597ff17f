package publish_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/publish"
)

func TestMessagesThatWereTooLargeToRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{publish.ModeFast, publish.ModeSync} {
		e := newEnv(t, variant{mode: mode, replicas: 1})
		waitConnected(t, e.Broker)
		require.EqualValues(t, 1<<20, e.MaxPayload())
		msgs := []publish.Message{{ID: "1", Topic: e.prefix + ".a"}, {ID: "2", Topic: e.prefix + ".a", TooLarge: 1<<20 + 1}, {ID: "3", Topic: e.prefix + ".a"}}
		res := e.Publish(t.Context(), e.stream, msgs)
		require.Equal(t, 1, res.Stored)
		requireErr(t, res.Err, publish.Refused, publish.ReasonTooLarge, true)

		msgs[1].TooLarge = 100
		res = e.Publish(t.Context(), e.stream, msgs[1:])
		require.Zero(t, res.Stored, "its body is not there")
		requireErr(t, res.Err, publish.Outage, publish.ReasonBusy, false)
	}
}
