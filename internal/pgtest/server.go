package pgtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/postgres"
)

// Server is a private server of one test. Its methods fail the test instead of returning errors. The embedded Stop, Freeze, Thaw, URL, Log
// and Port are those of postgres.Server.
type Server struct {
	*postgres.Server
	t testing.TB
}

// Setting is an option of StartServer: a configuration parameter.
func Setting(name, value string) func(*postgres.Options) {
	return func(o *postgres.Options) { o.Settings[name] = value }
}

// StartServer starts a server that only this test uses, and may therefore stop, crash, freeze, demote or promote.
func StartServer(t testing.TB, opts ...func(*postgres.Options)) *Server {
	t.Helper()
	o := options()
	for _, opt := range opts {
		opt(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	server, err := postgres.Start(ctx, o)
	require.NoError(t, err)
	return wrap(t, server)
}

func wrap(t testing.TB, server *postgres.Server) *Server {
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return &Server{Server: server, t: t}
}

// Database creates a database on the server and returns its URL.
func (s *Server) Database(name string) string {
	s.t.Helper()
	Exec(s.t, s.URL("postgres"), "CREATE DATABASE "+name)
	return s.URL(name)
}

// Start starts the server again after Stop, on the same port with the same data.
func (s *Server) Start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	require.NoError(s.t, s.Server.Start(ctx))
}

// Replica starts a hot standby of this server.
func (s *Server) Replica() *Server {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	replica, err := s.Server.Replica(ctx)
	require.NoError(s.t, err)
	return wrap(s.t, replica)
}

// Promote makes a replica a primary.
func (s *Server) Promote() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	require.NoError(s.t, s.Server.Promote(ctx))
}

// Demote restarts the server as the read-only rest of a failover.
func (s *Server) Demote() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	require.NoError(s.t, s.Server.Demote(ctx))
}

// StartPgbouncer starts a pgbouncer in transaction mode before the server of the URL, and returns the URL that leads to the same database
// through it. Another role of the server may enter too: put its name in the URL.
func StartPgbouncer(t testing.TB, target string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	bouncer, err := postgres.StartBouncer(ctx, target)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Close()) })
	return bouncer.URL()
}
