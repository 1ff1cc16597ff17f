package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

// between is a database where something happens once between a poll and the rows that come with it.
type between struct {
	worker.Database
	then atomic.Pointer[func() error]
	done chan error
}

func (d *between) PollArrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) (store.Poll, []store.Event, bool, error) {
	then := d.then.Swap(nil)
	if then == nil {
		return d.Database.PollArrivals(ctx, from, to, gaps, partitions)
	}
	p, err := d.Poll(ctx)
	d.done <- errors.Join(err, (*then)())
	rows, failed := d.Arrivals(ctx, from, to, gaps, partitions)
	return p, rows, true, errors.Join(err, failed)
}

func TestRowsNewerThanTheirPollWaitForTheNext(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	d := &between{done: make(chan error, 1)}
	e.Start(func(c *worker.Config) {
		d.Database = c.Database
		c.Database = d
	})
	ctx := t.Context()
	e.Insert("A", "a.x", "k", 1)
	e.Drained()

	open, err := e.DB.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, pooltest.InsertMany, "A", "a.x", "k", 1)
	require.NoError(t, err)
	// The open transaction ends, and its event is followed by another, when the poll has seen it open.
	then := func() error {
		if err := open.Commit(ctx); err != nil {
			return err
		}
		_, err := e.DB.Exec(ctx, pooltest.InsertMany, "A", "a.x", "k", 1)
		return err
	}
	d.then.Store(&then)
	_, err = e.DB.Exec(ctx, pooltest.InsertMany, "A", "a.x", "other", 1) // so that the worker is awake
	require.NoError(t, err)
	require.NoError(t, <-d.done)
	e.Drained()
	require.Len(t, e.Seqs("A"), 4)
	e.Check("A")
}
