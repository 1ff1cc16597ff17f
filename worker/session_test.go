package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/store"
)

// sequenceAt is a database whose sequence has reached polls, one after the other, and whose saved horizon is the same all the time.
type sequenceAt struct {
	Database
	polls   []int64
	horizon int64
	resets  int
}

func (d *sequenceAt) Meta(context.Context) (store.Meta, error) { return store.Meta{}, nil }

func (d *sequenceAt) Poll(context.Context) (store.Poll, error) {
	p := store.Poll{LastSeq: d.polls[0]}
	d.polls = d.polls[1:]
	return p, nil
}

func (d *sequenceAt) Horizon(context.Context) (int64, error) { return d.horizon, nil }

func (d *sequenceAt) SequenceReset(context.Context, int64) error {
	d.resets++
	return nil
}

func TestAHorizonSavedAfterThePollIsNoSequenceThatWentBackwards(t *testing.T) {
	w, _ := laneAt(t, OrderCommit, 0, 0)
	d := &sequenceAt{polls: []int64{100, 105}, horizon: 103}
	w.cfg.Database = d
	_, err := w.openSession(t.Context())
	require.NoError(t, err)
	require.Zero(t, d.resets)
	require.EqualValues(t, 103, w.front)

	d.polls = []int64{100, 100}
	_, err = w.openSession(t.Context())
	require.ErrorIs(t, err, errMoved)
	require.Equal(t, 1, d.resets, "one that is still behind")
}
