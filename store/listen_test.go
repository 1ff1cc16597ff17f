package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/postgres"
)

func TestListenWakesForInsertsWhileIdle(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	require.NoError(t, s.SetIdle(ctx, true))
	woken := make(chan struct{}, 100)
	listening, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.Listen(listening, func() { woken <- struct{}{} }) }()
	<-woken // it listens
	tx := begin(t, pgtest.Connect(t, d.url))
	insertBy(t, tx, "A", "k", 5)
	require.NoError(t, tx.Commit(ctx))
	<-woken
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Empty(t, woken, "one transaction notifies once")
}

func TestListenEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	address := server.Database("listen")
	migrateUp(t, address)
	s := openURL(t, address)
	woken := make(chan struct{}, 1)
	ended := make(chan error)
	listen := func() { ended <- s.Listen(ctx, func() { woken <- struct{}{} }) }
	go listen()
	<-woken
	server.Stop(postgres.Immediate)
	err := <-ended
	require.True(t, IsUnavailable(err), "%v", err)
	go listen()
	err = <-ended
	require.True(t, IsUnavailable(err), "%v", err)
}
