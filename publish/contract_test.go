package publish_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/publish"
)

func TestMessagesAreStoredInOrderWithTheirHeaders(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		msgs := e.messages(1, 600)
		for i := range msgs {
			msgs[i].Topic = fmt.Sprintf("%s.%d", e.prefix, i%7)
		}
		msgs[3].Headers = []byte(`{"traceparent": "00-ab-cd-01", "n": 1.50, "ok": true}`)
		msgs[3].ContentType = "application/json"
		msgs[5].Key = "a\r\nb"
		var last uint64
		for batch := range slices.Chunk(msgs, 250) {
			last = e.publish(batch).StreamSeq
		}
		require.Equal(t, uint64(600), last)
		require.Equal(t, v.mode, e.Mode(e.stream))

		stored := e.storedMessages()
		require.Equal(t, data(msgs), e.stored())
		for i, m := range stored {
			want := nats.Header{
				"Nats-Msg-Id": {msgs[i].ID}, "Nats-Expected-Stream": {e.stream},
				"Outlane-Seq": {strconv.Itoa(i + 1)}, "Outlane-Partition": {"3"}, "Outlane-Key": {"team"},
			}
			switch i {
			case 3:
				want["traceparent"], want["n"], want["ok"] = []string{"00-ab-cd-01"}, []string{"1.50"}, []string{"true"}
				want["Content-Type"] = []string{"application/json"}
			case 5:
				want["Outlane-Key"] = []string{"a%0D%0Ab"}
			}
			require.Equal(t, want, m.Header)
			require.Equal(t, msgs[i].Topic, m.Subject)
		}
	})
}

func TestEmptyAndSingleCalls(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		require.Equal(t, publish.Result{}, e.Publish(t.Context(), e.stream, nil))
		msgs := e.messages(1, 3)
		for i := range msgs {
			require.Equal(t, publish.Result{Stored: 1, StreamSeq: uint64(i + 1)}, e.publish(msgs[i:i+1]))
		}
		msgs = append(msgs, e.messages(4, 2)...)
		require.Equal(t, publish.Result{Stored: 2, StreamSeq: 5}, e.publish(msgs[3:]))
		require.Equal(t, data(msgs), e.stored())
	})
}

func TestDuplicatesAreStoredOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		msgs := e.messages(1, 30)
		e.publish(msgs[:10])
		require.Equal(t, uint64(10), e.publish(msgs[:10]).StreamSeq, "all")
		require.Equal(t, uint64(10), e.publish(msgs[9:10]).StreamSeq, "one")
		require.Equal(t, uint64(15), e.publish(msgs[5:15]).StreamSeq, "the first ones")
		late := slices.Concat(msgs[20:25], msgs[10:15])
		require.Equal(t, uint64(20), e.publish(late).StreamSeq, "the last ones")
		mixed := slices.Concat(msgs[25:27], msgs[3:5], msgs[27:28], msgs[26:27], msgs[28:30], msgs[0:1])
		require.Equal(t, uint64(25), e.publish(mixed).StreamSeq, "some in the middle")
		require.Equal(t, data(slices.Concat(msgs[:15], msgs[20:30])), e.stored())
	})
}

// refusal is a way to make one message unfit. Some are seen before anything is sent; for others only the server can know, because the stream
// was changed after the Broker looked at it.
type refusal struct {
	name      string
	change    func(*jetstream.StreamConfig) // behind the Broker's back
	spoil     func(e *env, m *publish.Message)
	reason    string
	permanent bool
}

var refusals = []refusal{
	{name: "bad subject", spoil: func(e *env, m *publish.Message) { m.Topic = e.prefix + "..x" }, reason: publish.ReasonBadSubject, permanent: true},
	{name: "reserved header", spoil: func(_ *env, m *publish.Message) { m.Headers = []byte(`{"nats-rollup":"all"}`) },
		reason: publish.ReasonReservedHeader, permanent: true},
	{name: "bad headers", spoil: func(_ *env, m *publish.Message) { m.Headers = []byte(`["x"]`) }, reason: publish.ReasonBadHeaders, permanent: true},
	{name: "too large", spoil: func(_ *env, m *publish.Message) { m.Data = make([]byte, 1<<20) }, reason: publish.ReasonTooLarge, permanent: true},
	{name: "wrong stream", spoil: func(_ *env, m *publish.Message) { m.Topic = "elsewhere" }, reason: publish.ReasonWrongStream},
	{name: "server: too large", change: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		spoil: func(_ *env, m *publish.Message) { m.Data = make([]byte, 1001) }, reason: publish.ReasonTooLarge, permanent: true},
	{name: "server: subject gone", change: func(c *jetstream.StreamConfig) { c.Subjects = []string{c.Subjects[0][:len(c.Subjects[0])-1] + "a"} },
		spoil: func(e *env, m *publish.Message) { m.Topic = e.prefix + ".b" }, reason: publish.ReasonWrongStream},
}

func TestARefusedMessageEndsTheCallThere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		places := []int{0, 1, 10, 18, 19}
		if v.replicas > 1 {
			places = []int{0, 10, 19}
		}
		for _, r := range refusals {
			for _, at := range places {
				t.Run(fmt.Sprintf("%s/%d", r.name, at), func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, v)
					e.publish(e.messages(1, 1))
					if r.change != nil {
						e.change(r.change)
					}
					msgs := e.messages(2, 20)
					r.spoil(e, &msgs[at])
					res := e.attempt(msgs)
					requireErr(t, res.Err, publish.Refused, r.reason, r.permanent)
					require.Equal(t, at, res.Stored)
					if at > 0 {
						require.Equal(t, uint64(at+1), res.StreamSeq)
					}
					require.Equal(t, at+1, len(e.stored()), "nothing after it was stored")
					e.publish(msgs[at+1:])
					want := append(data(e.messages(1, 1)), data(slices.Delete(msgs, at, at+1))...)
					require.Equal(t, want, e.stored())
				})
			}
		}
	})
}

func TestARefusalAmongDuplicates(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		msgs := e.messages(1, 10)
		e.publish(msgs[:5])
		e.change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
		msgs[5].Data = make([]byte, 1001)
		res := e.attempt(msgs)
		requireErr(t, res.Err, publish.Refused, publish.ReasonTooLarge, true)
		require.Equal(t, 5, res.Stored)
		require.Equal(t, data(msgs[:5]), e.stored())
	})
}

// A topic that moves to another stream, behind the Broker's back, must not be stored there.
func TestATopicOfAnotherStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		for _, batches := range []bool{true, false} {
			for _, at := range []int{0, 4, 9} {
				t.Run(fmt.Sprintf("batches=%v/%d", batches, at), func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, v)
					e.publish(e.messages(1, 1))
					e.change(func(c *jetstream.StreamConfig) { c.Subjects = []string{e.prefix + ".a"} })
					other := e.config
					other.Name, other.Subjects, other.AllowBatchPublish = e.stream+"-other", []string{e.prefix + ".b"}, batches
					e.create(other)
					msgs := e.messages(2, 10)
					msgs[at].Topic = e.prefix + ".b"
					res := e.attempt(msgs)
					requireErr(t, res.Err, publish.Refused, publish.ReasonWrongStream, false)
					require.Equal(t, at, res.Stored)
					require.Len(t, e.stored(), at+1)
					s, err := e.js.Stream(bounded(t), other.Name)
					require.NoError(t, err)
					require.Zero(t, s.CachedInfo().State.Msgs)
				})
			}
		}
	})
}

func TestSizesToTheByte(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		msgs := e.messages(1, 3)
		msgs[1].Headers = []byte(`{"x": "  spaces around  ", "é": 1}`)
		msgs[1].Headers = []byte(`{"x": "  ü  "}`)
		header := "NATS/1.0\r\n" + "Nats-Msg-Id: " + msgs[1].ID + "\r\nNats-Expected-Stream: " + e.stream +
			"\r\nOutlane-Seq: 2\r\nOutlane-Partition: 3\r\nOutlane-Key: team\r\nx: ü\r\n\r\n"
		msgs[1].Data = bytes.Repeat([]byte("x"), 1<<20-len(header))
		e.publish(msgs)
		require.Equal(t, data(msgs), e.stored())

		more := e.messages(4, 3)
		more[1].Headers, more[1].Data = msgs[1].Headers, append(msgs[1].Data, 'x')
		res := e.Publish(bounded(t), e.stream, more)
		requireErr(t, res.Err, publish.Refused, publish.ReasonTooLarge, true)
		require.Equal(t, 1, res.Stored)
		require.ErrorContains(t, res.Err, "payload")

		e.change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
		exact := e.messages(7, 3)
		short := strings.Replace(strings.Replace(header, "x: ü\r\n", "", 1), "-2\r\n", "-8\r\n", 1)
		exact[1].Data = bytes.Repeat([]byte("x"), 2000-len(short))
		e.publish(exact)
		large := e.messages(10, 3)
		large[2].Data = append(exact[1].Data, 'x')
		res = e.Publish(bounded(t), e.stream, large)
		requireErr(t, res.Err, publish.Refused, publish.ReasonTooLarge, true)
		require.Equal(t, 2, res.Stored)

		e.change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
		e.publish(large[2:])
	})
}

func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		msgs := e.messages(1, 3)
		fixed := len("NATS/1.0\r\nNats-Msg-Id: " + msgs[1].ID + "\r\nNats-Expected-Stream: " + e.stream +
			"\r\nOutlane-Seq: 2\r\nOutlane-Partition: 3\r\nOutlane-Key: team\r\nx: \r\n\r\n")
		msgs[1].Headers = fmt.Appendf(nil, `{"x": "%s"}`, strings.Repeat("y", 65535-fixed))
		e.publish(msgs)
		more := e.messages(4, 3)
		more[1].Headers = fmt.Appendf(nil, `{"x": "%s"}`, strings.Repeat("y", 65536-fixed))
		res := e.Publish(bounded(t), e.stream, more)
		requireErr(t, res.Err, publish.Refused, publish.ReasonTooLarge, true)
		require.ErrorContains(t, res.Err, "headers")
		require.Equal(t, 1, res.Stored)
	})
}

func TestACanceledCallIsAnOutage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		e.publish(e.messages(1, 2))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		res := e.Publish(ctx, e.stream, e.messages(3, 5))
		requireErr(t, res.Err, publish.Outage, publish.ReasonCanceled, false)
		e.deliver(e.messages(3, 5))
		require.Equal(t, data(e.messages(1, 7)), e.stored())
	})
}

func TestABadStreamNameIsRefused(t *testing.T) {
	t.Parallel()
	b := connect(t, publish.Config{URL: single()})
	waitConnected(t, b)
	for _, name := range []string{"", "a b", "a.b", "a*", ">", "a/b", `a\b`, "a\tb", strings.Repeat("x", 256)} {
		res := b.Publish(bounded(t), name, []publish.Message{{ID: "1", Topic: "a"}})
		requireErr(t, res.Err, publish.Refused, publish.ReasonBadStream, true)
		require.ErrorContains(t, res.Err, "stream:")
	}
}
