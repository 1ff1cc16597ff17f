package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/store"
)

func TestOverview(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.Migrated(t, 3)
	s, err := store.Open(store.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(s.Close)

	o, err := s.Overview(ctx)
	require.NoError(t, err)
	require.Empty(t, o.Members)
	require.Equal(t, []store.PartitionInfo{{Partition: 0}, {Partition: 1}, {Partition: 2}}, o.Partitions)
	require.Zero(t, o.LastSeq)
	require.Zero(t, o.Horizon)
	require.Regexp(t, `^test_\d+$`, o.Database)

	_, err = s.Claim(ctx, "a", []int{1})
	require.NoError(t, err)
	pgtest.Exec(t, url,
		`INSERT INTO outlane_members (id, duration, renewed_at, leaving) VALUES ('a', '10 s', now() - interval '1 hour', true), ('b', '500 ms', now() + interval '1 hour', false)`,
		`INSERT INTO outbox_events (topic, payload) VALUES ('t', '{}'), ('t', '{}')`)
	require.NoError(t, s.SaveHorizon(ctx, 1))

	o, err = s.Overview(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, o.LastSeq)
	require.EqualValues(t, 1, o.Horizon)
	require.Equal(t, "a", o.Partitions[1].Owner)
	require.EqualValues(t, 1, o.Partitions[1].Epoch)
	require.WithinDuration(t, o.Now, o.Partitions[1].ClaimedAt, time.Minute)
	require.Len(t, o.Members, 2)
	require.True(t, o.Members[0].Leaving)
	require.GreaterOrEqual(t, o.Members[0].Silent, time.Hour)
	require.Equal(t, 10*time.Second, o.Members[0].Duration)
	require.Equal(t, 500*time.Millisecond, o.Members[1].Duration)
	require.Zero(t, o.Members[1].Silent, "a clock that was set back is no silence")
}
