package publish_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

const ceiling = time.Minute

func TestMain(m *testing.M) {
	// Most tests wait most of the time: for a timeout, a leader, a server that starts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	atEndLock.Lock()
	defer atEndLock.Unlock()
	for _, stop := range atEnd {
		stop()
	}
	os.Exit(code)
}

var (
	atEndLock sync.Mutex
	atEnd     []func()
)

func stopAtEnd(stop func()) {
	atEndLock.Lock()
	defer atEndLock.Unlock()
	atEnd = append(atEnd, stop)
}

// single and cluster are servers that tests share which leave them alone.
var single = sync.OnceValue(func() string {
	s, err := natsserver.Start(natsserver.Options{})
	if err != nil {
		panic(err)
	}
	stopAtEnd(s.Close)
	return s.URL()
})

var cluster = sync.OnceValue(func() string {
	members, err := natsserver.ClusterOptions("shared", 3)
	if err != nil {
		panic(err)
	}
	var urls []string
	for _, opt := range members {
		s, err := natsserver.Start(opt)
		if err != nil {
			panic(err)
		}
		stopAtEnd(s.Close)
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
})

// variant is one of the ways that every promise must hold in.
type variant struct {
	mode     string
	replicas int
}

func (v variant) String() string { return fmt.Sprintf("%s/R%d", v.mode, v.replicas) }

var variants = []variant{
	{publish.ModeFast, 1}, {publish.ModeSync, 1}, {publish.ModeFast, 3}, {publish.ModeSync, 3},
}

// each runs a test for every variant, on the shared servers.
func each(t *testing.T, test func(t *testing.T, v variant)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// eachMode runs a test for both modes, without replicas.
func eachMode(t *testing.T, test func(t *testing.T, v variant)) {
	for _, v := range variants[:2] {
		t.Run(v.mode, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

var names atomic.Int64

// env is a stream and a Broker for it.
type env struct {
	*publish.Broker
	t      *testing.T
	v      variant
	url    string
	js     jetstream.JetStream
	nc     *nats.Conn
	stream string
	prefix string // of the stream's subjects: <prefix>.>
	config jetstream.StreamConfig
}

// newEnv makes a stream on the servers that the variant wants, and a Broker.
func newEnv(t *testing.T, v variant, change ...func(*jetstream.StreamConfig)) *env {
	url := single()
	if v.replicas > 1 {
		url = cluster()
	}
	return newEnvAt(t, v, url, publish.Config{}, change...)
}

func newEnvAt(t *testing.T, v variant, url string, cfg publish.Config, change ...func(*jetstream.StreamConfig)) *env {
	t.Helper()
	e := &env{t: t, v: v, url: url}
	e.nc = natstest.Connect(t, url)
	var err error
	e.js, err = jetstream.New(e.nc)
	require.NoError(t, err)
	n := names.Add(1)
	e.stream, e.prefix = fmt.Sprintf("S%d", n), fmt.Sprintf("s%d", n)
	e.config = jetstream.StreamConfig{
		Name: e.stream, Subjects: []string{e.prefix + ".>"}, Replicas: v.replicas, AllowBatchPublish: v.mode == publish.ModeFast,
	}
	for _, c := range change {
		c(&e.config)
	}
	e.create(e.config)
	if cfg.URL == "" {
		cfg.URL = url
	}
	e.Broker = connect(t, cfg)
	return e
}

func connect(t testing.TB, cfg publish.Config) *publish.Broker {
	t.Helper()
	b, err := publish.Connect(cfg)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func waitConnected(t testing.TB, b *publish.Broker) {
	t.Helper()
	require.NoError(t, b.WaitConnected(bounded(t)))
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	t.Cleanup(cancel)
	return ctx
}

// create makes a stream, also while a cluster has just started and says that it cannot yet.
func (e *env) create(config jetstream.StreamConfig) {
	e.t.Helper()
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
		defer cancel()
		_, err := e.js.CreateOrUpdateStream(ctx, config)
		require.NoError(c, err)
	}, ceiling, 50*time.Millisecond)
}

// change alters the stream's settings behind the Broker's back.
func (e *env) change(f func(*jetstream.StreamConfig)) {
	e.t.Helper()
	f(&e.config)
	_, err := e.js.UpdateStream(bounded(e.t), e.config)
	require.NoError(e.t, err)
}

// messages makes n messages with ids, data and numbers from the first on.
func (e *env) messages(first, n int) []publish.Message {
	msgs := make([]publish.Message, n)
	for i := range msgs {
		name := fmt.Sprintf("%s-%d", e.stream, first+i)
		msgs[i] = publish.Message{
			ID: name, Topic: e.prefix + ".a", Key: "team", Seq: int64(first + i), Partition: 3, Data: []byte(name),
		}
	}
	return msgs
}

// publish stores messages that nothing is wrong with.
func (e *env) publish(msgs []publish.Message) publish.Result {
	e.t.Helper()
	waitConnected(e.t, e.Broker)
	res := e.attempt(msgs)
	require.Nil(e.t, res.Err, "%v", res.Err)
	require.Equal(e.t, len(msgs), res.Stored)
	return res
}

// attempt is Publish, once. But where replicas may lack their leader for a moment, on a busy machine at any time, it goes on after that.
func (e *env) attempt(msgs []publish.Message) publish.Result {
	e.t.Helper()
	deadline := time.Now().Add(ceiling)
	var total publish.Result
	for {
		res := e.Publish(bounded(e.t), e.stream, msgs[total.Stored:])
		total.Stored += res.Stored
		total.StreamSeq, total.Err = max(total.StreamSeq, res.StreamSeq), res.Err
		if res.Err == nil || e.v.replicas == 1 || !passing[res.Err.Reason] || time.Now().After(deadline) {
			return total
		}
		e.pause()
	}
}

// passing are the reasons of outages that a healthy cluster can have for a moment.
var passing = map[string]bool{
	publish.ReasonTimeout: true, publish.ReasonNoLeader: true, publish.ReasonBatchLost: true, publish.ReasonIDInFlight: true,
}

// deliver publishes until all is stored, as a worker does: again from the first message that is not surely stored.
func (e *env) deliver(msgs []publish.Message) (outages int) {
	e.t.Helper()
	deadline := time.Now().Add(ceiling)
	for len(msgs) > 0 {
		res := e.Publish(bounded(e.t), e.stream, msgs)
		require.LessOrEqual(e.t, res.Stored, len(msgs))
		msgs = msgs[res.Stored:]
		if res.Err != nil {
			require.Equal(e.t, publish.Outage, res.Err.Kind, "%v", res.Err)
			require.True(e.t, time.Now().Before(deadline), "still an outage: %v", res.Err)
			outages++
			e.pause()
		}
	}
	return outages
}

// pause is what a worker waits at least before it tries again.
func (e *env) pause() {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

// stored is the data of the stream's messages, in order.
func (e *env) stored() []string {
	e.t.Helper()
	var all []string
	for _, m := range e.storedMessages() {
		all = append(all, string(m.Data))
	}
	return all
}

func (e *env) storedMessages() []*jetstream.RawStreamMsg {
	e.t.Helper()
	var all []*jetstream.RawStreamMsg
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		all = nil
		ctx, cancel := context.WithTimeout(e.t.Context(), ceiling/2)
		defer cancel()
		s, err := e.js.Stream(ctx, e.stream)
		require.NoError(c, err)
		state := s.CachedInfo().State
		for seq := state.FirstSeq; state.Msgs > 0 && seq <= state.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			require.NoError(c, err)
			all = append(all, m)
		}
	}, ceiling, 50*time.Millisecond)
	return all
}

func data(msgs []publish.Message) []string {
	var all []string
	for _, m := range msgs {
		all = append(all, string(m.Data))
	}
	return all
}

// requireErr checks what an Error is.
func requireErr(t *testing.T, e *publish.Error, kind publish.Kind, reason string, permanent bool) {
	t.Helper()
	require.NotNil(t, e)
	require.Equal(t, []any{kind.String(), reason, permanent}, []any{e.Kind.String(), e.Reason, e.Permanent}, "%v", e)
}
