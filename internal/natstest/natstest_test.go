package natstest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
)

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Ceiling)
	t.Cleanup(cancel)
	return ctx
}

func store(t *testing.T, js jetstream.JetStream, subject, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // an answer can be lost
		defer cancel()
		_, err := js.Publish(ctx, subject, []byte(subject), jetstream.WithMsgID(id))
		return err == nil
	}, natstest.Ceiling, 20*time.Millisecond)
}

func messages(t *testing.T, js jetstream.JetStream, stream string) int {
	t.Helper()
	s, err := js.Stream(bounded(t), stream)
	require.NoError(t, err)
	return int(s.CachedInfo().State.Msgs)
}

func TestServerKeepsItsPortAndData(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := natstest.JetStream(t, s.URL)
	_, err := js.CreateStream(bounded(t), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	store(t, js, "s", "1")
	s.Restart(t)
	require.Equal(t, s.URL, s.Server.URL())
	store(t, js, "s", "2")
	require.Equal(t, 2, messages(t, js, "S"))

	s.LameDuck()
	require.Nil(t, s.NATS())
	s.Restart(t)
	store(t, js, "s", "3")
	require.Equal(t, 3, messages(t, js, "S"))
}

func TestReloadChangesWhoMayConnect(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	require.NoError(t, s.Reload(func(o *server.Options) { o.Username, o.Password = "u", "new" }))
	_, err := nats.Connect(s.URL)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	natstest.Connect(t, s.URL, nats.UserInfo("u", "new"))
	s.Stop()
	require.Error(t, s.Reload(nil))
}

func TestStartFailsOnATakenPort(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *natsserver.Options) { o.Name = "first" })
	port := s.NATS().Addr().(*net.TCPAddr).Port
	_, err := natsserver.Start(natsserver.Options{Port: port, StoreDir: t.TempDir()})
	require.Error(t, err)
}

func TestClusterElectsAnotherLeader(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	nc := natstest.Connect(t, c.URL)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(bounded(t), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	require.NoError(t, err)
	first := c.WaitLeader(t, "S")
	store(t, js, "s", "4")
	require.NoError(t, natstest.StepDown(bounded(t), nc, "S"))
	store(t, js, "s", "5")
	second := c.WaitLeader(t, "S")
	require.NotEqual(t, first, second)
	c.Servers[second].Stop()
	c.WaitReady(t)
	store(t, js, "s", "6")
	c.Servers[second].Restart(t)
	c.WaitReady(t)
	require.Equal(t, 3, messages(t, js, "S"))
}

func TestProcessIsKilledAndFrozen(t *testing.T) {
	t.Parallel()
	p := natstest.StartProcess(t)
	url := p.URL
	js := natstest.JetStream(t, p.URL)
	_, err := js.CreateStream(bounded(t), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	store(t, js, "s", "7")
	p.Kill()
	p.Start(t)
	require.Equal(t, url, p.URL)
	store(t, js, "s", "8")

	p.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = js.Publish(ctx, "s", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.Thaw(t)
	store(t, js, "s", "9")
}
