package publish_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

// With its followers gone a leader still takes proposals for a while, and calls their ids duplicates although nothing is stored.
func TestIDsInFlightAreNotStored(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{publish.ModeFast, publish.ModeSync} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := natstest.StartCluster(t, 3)
			v := variant{mode, 3}
			e := newEnvAt(t, v, c.URL, publish.Config{AckTimeout: quick})
			e.publish(e.messages(1, 2))
			leader := c.WaitLeader(t, e.stream)
			b := connect(t, publish.Config{URL: c.Servers[leader].URL, AckTimeout: quick})
			waitConnected(t, b)
			direct := *e
			direct.Broker = b
			direct.publish(e.messages(2, 1)) // it knows the stream
			for i, s := range c.Servers {
				if i != leader {
					s.Stop()
				}
			}
			first := b.Publish(bounded(t), e.stream, e.messages(3, 10))
			requireOutage(t, first, publish.ReasonTimeout)
			for range 3 {
				res := b.Publish(bounded(t), e.stream, e.messages(3, 10))
				requireOutage(t, res, publish.ReasonIDInFlight, publish.ReasonTimeout, publish.ReasonNoLeader)
				require.Zero(t, res.Stored)
			}
			for i, s := range c.Servers {
				if i != leader {
					require.NoError(t, s.Start())
				}
			}
			c.WaitReady(t)
			e.deliver(e.messages(3, 10))
			require.Equal(t, data(e.messages(1, 12)), e.stored())
		})
	}
}

func requireOutage(t *testing.T, res publish.Result, reasons ...string) {
	t.Helper()
	require.NotNil(t, res.Err)
	require.Equal(t, publish.Outage, res.Err.Kind)
	require.Contains(t, reasons, res.Err.Reason, "%v", res.Err)
}

func TestLeadersThatStepDown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{publish.ModeFast, publish.ModeSync} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newEnvAt(t, variant{mode, 3}, cluster(), publish.Config{AckTimeout: quick})
			e.publish(e.messages(1, 1))
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				tick := time.NewTicker(150 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						_ = natstest.StepDown(t.Context(), e.nc, e.stream) // it may have no leader just then
					case <-stop:
						return
					}
				}
			}()
			outages, next := 0, 2
			size := map[string]int{publish.ModeFast: 100, publish.ModeSync: 20}[mode]
			for deadline := time.Now().Add(ceiling); outages < 6 && time.Now().Before(deadline); next += size {
				outages += e.deliver(e.messages(next, size))
			}
			close(stop)
			<-stopped
			require.Positive(t, outages, "no leader change met a call")
			e.requireStored(next - 1)
		})
	}
}

// requireStored checks that the stream has the first n messages in order, each once.
func (e *env) requireStored(n int) {
	e.t.Helper()
	got := e.storedQuickly()
	for i, want := range data(e.messages(1, n)) {
		if i >= len(got) || got[i] != want {
			require.Fail(e.t, "the stream is not as it should be", "at %d should be %s; around it is %v", i, want,
				got[min(max(i-3, 0), len(got)):min(i+4, len(got))])
		}
	}
	require.Len(e.t, got, n)
}

// storedQuickly is stored for many messages.
func (e *env) storedQuickly() []string {
	e.t.Helper()
	var all []string
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		all = nil
		s, err := e.js.Stream(bounded(e.t), e.stream)
		require.NoError(c, err)
		want := int(s.CachedInfo().State.Msgs)
		consumer, err := s.OrderedConsumer(bounded(e.t), jetstream.OrderedConsumerConfig{})
		require.NoError(c, err)
		messages, err := consumer.Messages()
		require.NoError(c, err)
		defer messages.Stop()
		for len(all) < want {
			m, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
			require.NoError(c, err) // as when a leader has just moved
			all = append(all, string(m.Data()))
		}
	}, ceiling, 50*time.Millisecond)
	return all
}

func TestAServerOfAClusterThatGoes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{publish.ModeFast, publish.ModeSync} {
		for _, how := range []string{"stop", "lame duck"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				t.Parallel()
				c := natstest.StartCluster(t, 3)
				e := newEnvAt(t, variant{mode, 3}, c.URL, publish.Config{AckTimeout: quick})
				e.publish(e.messages(1, 1))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					for _, s := range c.Servers {
						if how == "stop" {
							s.Stop()
						} else {
							s.LameDuck()
						}
						if err := s.Start(); err != nil {
							t.Error(err)
						}
						c.WaitReady(t)
					}
				}()
				next := 2
				for over := false; !over; next += 50 {
					select {
					case <-gone:
						over = true
					default:
					}
					e.deliver(e.messages(next, 50))
				}
				e.requireStored(next - 1)
			})
		}
	}
}
