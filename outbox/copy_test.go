package outbox_test

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/outbox"
)

func one(events ...outbox.Event) iter.Seq[outbox.Event] { return slices.Values(events) }

func TestEnqueueCopyStoresEveryField(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			admin, role := producer(t)
			before := time.Now()
			conn := pgtest.Connect(t, role+"&default_query_exec_mode="+mode)
			require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				n, err := outbox.EnqueueCopy(ctx, tx, one(sample()...))
				require.EqualValues(t, 7, n)
				return err
			}))
			requireSample(t, before, rows(t, admin))
		})
	}
}

func TestEnqueueCopyKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin, role := producer(t)
	var want []string
	events := func(yield func(outbox.Event) bool) {
		for i := range 5000 {
			id := strconv.Itoa(i)
			want = append(want, id)
			if !yield(outbox.Event{ID: id, Topic: "a", Stream: "S", Payload: object{"n": i}}) {
				return
			}
		}
	}
	require.NoError(t, pgx.BeginFunc(ctx, pgtest.Connect(t, role), func(tx pgx.Tx) error {
		_, err := outbox.EnqueueCopy(ctx, tx, events)
		return err
	}))
	require.Equal(t, want, ids(t, admin))
}

func TestEnqueueCopyStopsAtAnInvalidEvent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin, role := producer(t)
	drawn := 0
	events := func(yield func(outbox.Event) bool) {
		for i := range 100 {
			drawn++
			event := outbox.Event{Topic: "a"}
			if i == 7 {
				event.Topic = "a.*"
			}
			if !yield(event) {
				return
			}
		}
	}
	err := pgx.BeginFunc(ctx, pgtest.Connect(t, role), func(tx pgx.Tx) error {
		_, err := outbox.EnqueueCopy(ctx, tx, events)
		return err
	})
	var invalid *outbox.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.ErrorIs(t, err, outbox.ErrTopic)
	require.Equal(t, 7, invalid.Index)
	require.Equal(t, 8, drawn)
	require.Empty(t, rows(t, admin))
}

func TestEnqueueCopySaysWhatTheDatabaseSaid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin, role := producer(t)
	err := pgx.BeginFunc(ctx, pgtest.Connect(t, role), func(tx pgx.Tx) error {
		_, err := outbox.EnqueueCopy(ctx, tx, one(outbox.Event{ID: "1", Topic: "a"}, outbox.Event{ID: "1", Topic: "a"}))
		return err
	})
	require.ErrorContains(t, err, "copy events into the outbox")
	require.ErrorContains(t, err, "23505")
	require.Empty(t, rows(t, admin))
}
