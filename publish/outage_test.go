package publish_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

// quick makes tests of timeouts short. It is still long against what a healthy server takes.
const quick = time.Second

func TestAConnectionCutInTheMiddle(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := newProxy(t, single())
		e := newEnvAt(t, v, single(), publish.Config{URL: p.url})
		next := 1
		send := func(n int) []publish.Message {
			msgs := e.messages(next, n)
			next += n
			return msgs
		}
		e.publish(send(10))
		outages := 0
		for _, bytes := range []int{0, 1, 100, 333, 1000, 2000, 5000, 10000, 16000} {
			msgs := send(100)
			p.CutAfter(bytes)
			outages += e.deliver(msgs)
		}
		require.Positive(t, outages)
		require.Equal(t, data(e.messages(1, next-1)), e.stored())
	})
}

func TestALostConnectionEndsACallAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := newProxy(t, single())
		e := newEnvAt(t, v, single(), publish.Config{URL: p.url, AckTimeout: 2 * ceiling})
		e.publish(e.messages(1, 2))
		p.Silence(true)
		done := make(chan publish.Result)
		go func() { done <- e.Publish(t.Context(), e.stream, e.messages(3, 10)) }()
		require.Eventually(t, func() bool { return len(e.stored()) > 2 }, ceiling, time.Millisecond)
		p.Refuse(true)
		res := <-done
		requireErr(t, res.Err, publish.Outage, publish.ReasonNotConnected, false)
		require.Zero(t, res.Stored)
		res = e.Publish(t.Context(), e.stream, e.messages(3, 10))
		requireErr(t, res.Err, publish.Outage, publish.ReasonNotConnected, false)
		p.Silence(false)
		p.Refuse(false)
		e.deliver(e.messages(3, 10))
		require.Equal(t, data(e.messages(1, 12)), e.stored())
	})
}

func TestAnswersThatDoNotCome(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := newProxy(t, single())
		e := newEnvAt(t, v, single(), publish.Config{URL: p.url, AckTimeout: quick})
		e.publish(e.messages(1, 2))
		p.Silence(true)
		for _, n := range []int{1, 10} {
			res := e.Publish(t.Context(), e.stream, e.messages(3, n))
			requireErr(t, res.Err, publish.Outage, publish.ReasonTimeout, false)
			require.Zero(t, res.Stored)
		}
		p.Silence(false)
		e.deliver(e.messages(3, 10))
		require.Equal(t, data(e.messages(1, 12)), e.stored())
	})
}

func TestAFrozenServer(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := natstest.StartProcess(t)
		e := newEnvAt(t, v, p.URL, publish.Config{AckTimeout: quick})
		e.publish(e.messages(1, 2))
		p.Freeze(t)
		res := e.Publish(t.Context(), e.stream, e.messages(3, 300))
		requireErr(t, res.Err, publish.Outage, publish.ReasonTimeout, false)
		p.Thaw(t)
		e.deliver(e.messages(3, 300))
		require.Equal(t, data(e.messages(1, 302)), e.stored())
	})
}

func TestAServerKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := natstest.StartProcess(t)
		e := newEnvAt(t, v, p.URL, publish.Config{AckTimeout: quick})
		e.publish(e.messages(1, 10))
		var next atomic.Int64
		next.Store(11)
		outages := make(chan int)
		stop := make(chan struct{})
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					outages <- n
					return
				default:
				}
				n += e.deliver(e.messages(int(next.Load()), 50))
				next.Add(50)
			}
		}()
		for range 3 {
			start := next.Load()
			require.Eventually(t, func() bool { return next.Load() > start+200 }, ceiling, time.Millisecond)
			p.Kill()
			p.Start(t)
		}
		close(stop)
		require.Positive(t, <-outages)
		e.requireStored(int(next.Load() - 1))
	})
}

func TestAMissingStream(t *testing.T) {
	t.Parallel()
	for _, listener := range []string{"nobody", "silent", "answers", "pretends"} {
		t.Run(listener, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, v variant) {
				s := natstest.Start(t)
				e := newEnvAt(t, v, s.URL, publish.Config{AckTimeout: quick})
				e.publish(e.messages(1, 1))
				require.NoError(t, e.js.DeleteStream(bounded(t), e.stream))
				answers := map[string]string{"answers": "thank you", "pretends": `{"stream":"OTHER","seq":7}`}
				if listener != "nobody" {
					_, err := e.nc.Subscribe(e.prefix+".>", func(m *nats.Msg) {
						if text := answers[listener]; text != "" {
							_ = m.Respond([]byte(text))
						}
					})
					require.NoError(t, err)
					require.NoError(t, e.nc.Flush())
				}
				for _, n := range []int{1, 10} {
					res := e.Publish(bounded(t), e.stream, e.messages(1, n))
					requireErr(t, res.Err, publish.Outage, publish.ReasonStreamMissing, false)
					require.Zero(t, res.Stored)
				}
				e.create(e.config)
				e.publish(e.messages(1, 10))
				require.Equal(t, data(e.messages(1, 10)), e.stored())
			})
		})
	}
}

// A plain subscriber on a stream's topics must change nothing, whatever it answers, and however quickly.
func TestASubscriberThatAnswersToo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		size := map[string]int{publish.ModeFast: 1000, publish.ModeSync: 30}[v.mode]
		answers := []string{"thank you", `{"stream":"OTHER","seq":7}`, `{"type":"ack"}`, `{}`, `{"stream":"` + e.stream + `"}`}
		for i, text := range answers {
			sub, err := e.nc.Subscribe(e.prefix+".>", func(m *nats.Msg) { _ = m.Respond([]byte(text)) })
			require.NoError(t, err)
			require.NoError(t, e.nc.Flush())
			e.publish(e.messages(1+size*i, size))
			require.NoError(t, sub.Unsubscribe())
		}
		e.requireStored(size * len(answers))
	})
}

func TestStreamsThatTakeNothing(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		change func(*jetstream.StreamConfig)
		mend   func(*jetstream.StreamConfig)
	}{
		{publish.ReasonSealed, func(c *jetstream.StreamConfig) { c.Sealed = true }, nil},
		{publish.ReasonNoAck, func(c *jetstream.StreamConfig) { c.NoAck = true }, func(c *jetstream.StreamConfig) { c.NoAck = false }},
		{
			publish.ReasonStreamFull,
			func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 5 },
			func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 },
		},
		{
			publish.ReasonStreamFull,
			func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardNew, 1200 },
			func(c *jetstream.StreamConfig) { c.MaxBytes = -1 },
		},
		{
			publish.ReasonSubjectFull,
			func(c *jetstream.StreamConfig) {
				c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject, c.MaxMsgs = jetstream.DiscardNew, true, 5, -1
			},
			func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = -1, false },
		},
	}
	each(t, func(t *testing.T, v variant) {
		for i, c := range cases {
			t.Run(fmt.Sprintf("%d %s", i, c.reason), func(t *testing.T) {
				t.Parallel()
				url := single()
				if v.replicas > 1 {
					url = cluster()
				}
				e := newEnvAt(t, v, url, publish.Config{AckTimeout: quick})
				e.publish(e.messages(1, 2))
				e.change(c.change)
				for _, n := range []int{1, 20} {
					before := len(e.stored())
					res := e.attempt(e.messages(3, n))
					if res.Err != nil || n > 1 {
						requireErr(t, res.Err, publish.Outage, c.reason, false)
					}
					if c.reason != publish.ReasonNoAck { // which stores what it does not acknowledge
						require.LessOrEqual(t, before, 2+res.Stored)
					}
				}
				require.Equal(t, data(e.messages(1, len(e.stored()))), e.stored())
				if c.mend != nil {
					e.change(c.mend)
					e.deliver(e.messages(3, 20))
					require.Equal(t, data(e.messages(1, 22)), e.stored())
				}
			})
		}
	})
}

func TestAMirrorTakesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		e := newEnv(t, v)
		e.create(jetstream.StreamConfig{Name: e.stream + "-mirror", Mirror: &jetstream.StreamSource{Name: e.stream}})
		waitConnected(t, e.Broker)
		res := e.Publish(bounded(t), e.stream+"-mirror", e.messages(1, 2))
		requireErr(t, res.Err, publish.Outage, publish.ReasonMirror, false)
		require.Empty(t, e.stored())
	})
}

func TestATopicThatMayNotBePublished(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		for _, at := range []int{0, 1, 5, 9} {
			t.Run(fmt.Sprint(at), func(t *testing.T) {
				t.Parallel()
				allow := func(o *server.Options) {
					o.Users = []*server.User{
						{Username: "admin", Password: "admin-password"},
						{Username: "outlane", Password: "some-password", Permissions: &server.Permissions{
							Publish: &server.SubjectPermission{Deny: []string{"*.denied"}},
						}},
					}
				}
				s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = allow })
				admin := fmt.Sprintf("nats://admin:admin-password@%s", s.URL[len("nats://"):])
				e := newEnvAt(t, v, admin, publish.Config{URL: s.URL, Username: "outlane", Password: "some-password", AckTimeout: quick})
				waitConnected(t, e.Broker)
				msgs := e.messages(1, 10)
				msgs[at].Topic = e.prefix + ".denied"
				res := e.Publish(bounded(t), e.stream, msgs)
				requireErr(t, res.Err, publish.Outage, publish.ReasonPermission, false)
				require.Equal(t, at, res.Stored)
				require.Equal(t, data(msgs[:at]), e.stored())

				msgs[at].Topic = e.prefix + ".a"
				e.deliver(msgs)
				require.Equal(t, data(msgs), e.stored())
			})
		}
	})
}

func TestTooManyBatchesAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *natsserver.Options) {
		o.Configure = func(o *server.Options) { o.JetStreamLimits.MaxBatchInflightPerStream = 1 }
	})
	e := newEnvAt(t, variants[0], s.URL, publish.Config{})
	e.publish(e.messages(1, 2))
	inbox := e.nc.NewInbox()
	sub, err := e.nc.SubscribeSync(inbox + ".>")
	require.NoError(t, err)
	require.NoError(t, e.nc.PublishRequest(e.prefix+".b", inbox+".other.10.fail.1.0.$FI", []byte("other")))
	_, err = sub.NextMsgWithContext(bounded(t))
	require.NoError(t, err)

	res := e.Publish(bounded(t), e.stream, e.messages(3, 10))
	requireErr(t, res.Err, publish.Outage, publish.ReasonBusy, false)
	require.Zero(t, res.Stored)
	require.NoError(t, e.nc.PublishRequest(e.prefix+".b", inbox+".other.10.fail.2.2.$FI", []byte("other")))
	e.deliver(e.messages(3, 10))
	require.Len(t, e.stored(), 14)
}

func TestTheModeFollowsTheStream(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, variant{publish.ModeFast, replicas})
			require.Empty(t, e.Mode(e.stream))
			e.publish(e.messages(1, 10))
			require.Equal(t, publish.ModeFast, e.Mode(e.stream))
			e.change(func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false })
			e.publish(e.messages(11, 10))
			require.Equal(t, publish.ModeSync, e.Mode(e.stream))
			require.Equal(t, data(e.messages(1, 20)), e.stored())
		})
	}
}

// The stream is there, but does not have the topic any more, and somebody else answers in its name.
func TestAnswersLookLikeTheServers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	e := newEnvAt(t, variants[0], s.URL, publish.Config{AckTimeout: quick})
	e.publish(e.messages(1, 1))
	require.NoError(t, e.js.DeleteStream(bounded(t), e.stream))
	other := e.config
	other.Subjects = []string{"unused"}
	e.create(other) // the stream is there, but somebody else answers to its topics
	_, err := e.nc.Subscribe(e.prefix+".>", func(m *nats.Msg) {
		text, _ := json.Marshal(map[string]any{"stream": e.stream, "seq": 1})
		_ = m.Respond(text)
	})
	require.NoError(t, err)
	require.NoError(t, e.nc.Flush())
	res := e.Publish(bounded(t), e.stream, e.messages(2, 10))
	requireErr(t, res.Err, publish.Refused, publish.ReasonWrongStream, false)
	require.Zero(t, res.Stored)
}
