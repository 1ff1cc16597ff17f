package worker_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pooltest"
)

func numbers(from, to int) string {
	var list []string
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return strings.Join(list, " ")
}

func TestStreamsThatTakeNothingForAWhileGetEverythingInOrder(t *testing.T) {
	t.Parallel()
	type change = func(*jetstream.StreamConfig)
	cases := map[string]struct {
		hinder change // the stream as the worker finds it
		reason string
		heal   func(e *pooltest.Env)
	}{
		"never acknowledges": {func(c *jetstream.StreamConfig) { c.NoAck = true }, "no_ack",
			func(e *pooltest.Env) { e.Stream("A", []string{"a.>"}) }},
		"full": {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 5, jetstream.DiscardNew }, "stream_full",
			func(e *pooltest.Env) { e.Stream("A", []string{"a.>"}) }},
		"full of bytes": {func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 2000, jetstream.DiscardNew }, "stream_full",
			func(e *pooltest.Env) { e.Stream("A", []string{"a.>"}) }},
		"subject full": {func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.Discard, c.DiscardNewPerSubject = 5, jetstream.DiscardNew, true
		}, "subject_full", func(e *pooltest.Env) { e.Stream("A", []string{"a.>"}) }},
		"sealed": {func(c *jetstream.StreamConfig) { c.Sealed = true }, "sealed", func(e *pooltest.Env) {
			require.NoError(e.T, e.JS.DeleteStream(e.T.Context(), "A"))
			e.Stream("A", []string{"a.>"})
		}},
	}
	for mode, set := range modes {
		for name, c := range cases {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				e := pooltest.New(t, 1)
				e.Stream("A", []string{"a.>"}, set)
				e.Stream("A", []string{"a.>"}, set, c.hinder)
				e.Stream("B", []string{"b.>"}, set)
				e.Insert("A", "a.x", "k", 20)
				e.Start()
				e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE stream = 'A' AND reason = $1", c.reason)
				e.Insert("B", "b.x", "k", 20)
				e.Eventually(20, "SELECT count(*) FROM outbox_events WHERE processed AND stream = 'B'")
				stored := strings.Join(e.Seqs("A"), " ")
				require.True(t, strings.HasPrefix(numbers(1, 20), stored) && len(stored) < len(numbers(1, 20)), "only a beginning is there: %s", stored)
				c.heal(e)
				e.Drained()
				require.Equal(t, numbers(1, 20), strings.Join(e.Seqs("A"), " "))
				require.Zero(t, e.Count("SELECT count(*) FROM outbox_dead_letters"))
				require.Zero(t, e.Count("SELECT count(*) FROM outbox_events WHERE attempts > 0"))
			})
		}
	}
}

func TestAPlainSubscriberIsNoStream(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	nc := natstest.Connect(t, e.NATS)
	heard, err := nc.Subscribe("a.>", func(m *nats.Msg) { _ = m.Respond([]byte("+OK")) })
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	e.Start()
	e.Insert("A", "a.x", "k", 10)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE stream = 'A' AND reason = 'stream_missing'")
	require.Zero(t, e.Count("SELECT count(*) FROM outbox_events WHERE processed"))
	e.Stream("A", []string{"a.>"})
	e.Drained()
	require.NoError(t, heard.Unsubscribe())
	require.Equal(t, numbers(1, 10), strings.Join(e.Seqs("A"), " "))
}

func TestAStreamThatLostItsDataIsNoticed(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start()
	e.Insert("A", "a.x", "k", 10)
	e.Drained()
	require.NoError(t, e.JS.DeleteStream(t.Context(), "A"))
	e.Insert("A", "a.x", "k", 5)
	e.Eventually(1, "SELECT count(*) FROM outlane_lane_states WHERE stream = 'A' AND reason = 'stream_missing'")
	e.Stream("A", []string{"a.>"})
	e.Drained()
	require.Equal(t, numbers(11, 15), strings.Join(e.Seqs("A"), " "))
	require.Equal(t, 1, e.Log.Has("stream has lost messages"))
}

func TestLeadersThatMoveAndServersThatGo(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 8)
			cluster := natstest.StartCluster(t, 3)
			e.NATS, e.JS = cluster.URL, natstest.JetStream(t, cluster.URL)
			replicated := func(c *jetstream.StreamConfig) { c.Replicas = 3 }
			e.Stream("A", []string{"a.>"}, set, replicated)
			e.Stream("B", []string{"b.>"}, set, replicated)
			e.Start()
			e.Start()
			var producer sync.WaitGroup
			var moved atomic.Bool // the leaders, as often as they are to
			producer.Go(func() {
				for i := 0; (i < 8 || !moved.Load()) && t.Context().Err() == nil; i++ {
					produce(e, i, 25)
				}
			})
			nc := natstest.Connect(t, cluster.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
			processed := func() int { return e.Count("SELECT count(*) FROM outbox_events WHERE processed") }
			moreThan := func(n int) bool { return pooltest.WaitFor(func() bool { return processed() > n }) }
			for range 3 {
				require.True(t, moreThan(processed()))
				_ = natstest.StepDown(t.Context(), nc, "A") // there may be no leader just now
			}
			victim := cluster.Servers[cluster.WaitLeader(t, "A")]
			victim.Stop()
			moved.Store(true)
			producer.Wait()
			require.NoError(t, victim.Start())
			cluster.WaitReady(t)
			other := cluster.Servers[cluster.WaitLeader(t, "B")]
			n := processed()
			e.Insert("A", "a.x", "k", 500)
			other.LameDuck()
			e.Insert("B", "b.x", "k", 500)
			require.True(t, moreThan(n))
			require.NoError(t, other.Start())
			cluster.WaitReady(t)
			e.Drained()
			e.Check("A", "B")
			require.Zero(t, e.Count("SELECT count(*) FROM outbox_dead_letters"))
		})
	}
}
