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

func TestIdleMarkMakesInsertsNotify(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	channel := one[string](d, "SELECT 'outlane_' || left(md5('public'), 16)")
	listener := pgtest.Connect(t, d.url)
	_, err := listener.Exec(ctx, "LISTEN "+channel)
	require.NoError(t, err)

	d.insert("A", "k", 1)
	require.NoError(t, s.SetIdle(ctx, true))
	d.insert("B", "k", 1)
	require.NoError(t, s.SetIdle(ctx, false))
	d.insert("C", "k", 1)
	d.exec("SELECT pg_notify($1, 'end')", channel)
	var heard []string
	for len(heard) == 0 || heard[len(heard)-1] != "end" {
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err)
		heard = append(heard, n.Payload)
	}
	require.Equal(t, []string{"", "end"}, heard)
}
