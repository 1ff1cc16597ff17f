// Package natstest gives tests real NATS servers with JetStream: Start for one in this process, StartCluster for three, StartProcess for one
// that can be killed or frozen. Everything is gone when the test ends, and when the process dies.
package natstest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
)

// Ceiling bounds every wait of this package. It is generous: a loaded machine is no failure.
const Ceiling = time.Minute

// Option changes the options of a server.
type Option func(*natsserver.Options)

// Server is a server in this process. A test may stop it and start it again.
type Server struct {
	*natsserver.Server
	URL string
}

// Start runs a server until the test ends.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	opt := natsserver.Options{StoreDir: t.TempDir()}
	for _, set := range options {
		set(&opt)
	}
	s, err := natsserver.Start(opt)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &Server{Server: s, URL: s.URL()}
}

// Restart stops the server, if it runs, and starts it on the same port with the same data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	require.NoError(t, s.Start())
}

// Cluster is some servers that form one.
type Cluster struct {
	Servers []*Server
	URL     string // all members' addresses, with commas between
}

// StartCluster runs a cluster of n servers until the test ends, and returns when JetStream has a leader and every member follows it.
func StartCluster(t testing.TB, n int, options ...Option) *Cluster {
	t.Helper()
	members, err := natsserver.ClusterOptions("c", n)
	require.NoError(t, err)
	c := &Cluster{}
	var urls []string
	for _, opt := range members {
		s := Start(t, append([]Option{func(o *natsserver.Options) {
			opt.StoreDir = o.StoreDir
			*o = opt
		}}, options...)...)
		c.Servers = append(c.Servers, s)
		urls = append(urls, s.URL)
	}
	c.URL = strings.Join(urls, ",")
	c.WaitReady(t)
	return c
}

// WaitReady returns when JetStream has a leader that knows every member that runs to be there, and they follow it.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		leaders, running := 0, 0
		for _, s := range c.Servers {
			if s.NATS() != nil {
				running++
			}
		}
		for _, s := range c.Servers {
			srv := s.NATS()
			if srv == nil {
				continue
			}
			if !srv.JetStreamIsCurrent() {
				return false
			}
			if srv.JetStreamIsLeader() && knowsAll(srv, running) {
				leaders++
			}
		}
		return leaders == 1
	}, Ceiling, 20*time.Millisecond, "the cluster has no leader")
}

// knowsAll says whether the leader of JetStream counts so many members as online, itself among them. Until it does it places no replica there.
func knowsAll(leader *server.Server, running int) bool {
	info, err := leader.Jsz(&server.JSzOptions{})
	if err != nil || info.Meta == nil {
		return false
	}
	online := 1
	for _, peer := range info.Meta.Replicas {
		if peer.Current && !peer.Offline {
			online++
		}
	}
	return online >= running
}

// Leader is the index of the server that leads a stream, -1 if none does now. The stream belongs to the default account.
func (c *Cluster) Leader(stream string) int {
	for i, s := range c.Servers {
		if srv := s.NATS(); srv != nil && srv.JetStreamIsStreamLeader("$G", stream) {
			return i
		}
	}
	return -1
}

// WaitLeader returns the index of the server that leads a stream, once there is one.
func (c *Cluster) WaitLeader(t testing.TB, stream string) int {
	t.Helper()
	leader := -1
	require.Eventually(t, func() bool {
		leader = c.Leader(stream)
		return leader >= 0
	}, Ceiling, 5*time.Millisecond, "the stream has no leader")
	return leader
}

// StepDown asks the leader of a stream to give up being it. That another is elected is not waited for. It fails soon if there is no leader.
func StepDown(ctx context.Context, nc *nats.Conn, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	return err
}

// Connect opens a connection to a server until the test ends.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, options...)...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// JetStream opens a connection to a server until the test ends, for its JetStream.
func JetStream(t testing.TB, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(Connect(t, url, options...))
	require.NoError(t, err)
	return js
}
