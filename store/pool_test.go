package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestOnePoolHasTheTable(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	require.NoError(t, s.ClaimPool(ctx, "a", time.Minute))
	require.NoError(t, s.ClaimPool(ctx, "a", time.Minute))
	var other *PoolError
	require.ErrorAs(t, s.ClaimPool(ctx, "b", time.Minute), &other)
	require.Equal(t, "a", other.Pool)
	require.ErrorContains(t, other, `the pool "a"`)

	d.exec("UPDATE outlane_pool SET seen_at = now() - interval '50 seconds'")
	require.ErrorAs(t, s.ClaimPool(ctx, "b", time.Minute), &other)
	require.GreaterOrEqual(t, other.Silent, 50*time.Second)
	require.NoError(t, s.ClaimPool(ctx, "a", time.Minute), "it is kept fresh")
	require.True(t, one[bool](d, "SELECT seen_at > now() - interval '40 seconds' FROM outlane_pool"))

	for _, lapsed := range []string{"now() - interval '61 seconds'", "'-infinity'", "'infinity'"} {
		d.exec("UPDATE outlane_pool SET pool = 'a', seen_at = " + lapsed)
		require.NoError(t, s.ClaimPool(ctx, "b", time.Minute), lapsed)
		require.ErrorAs(t, s.ClaimPool(ctx, "a", time.Minute), &other)
	}
	require.Equal(t, 1, one[int](d, "SELECT count(*) FROM outlane_pool"))
}

func TestOfTwoPoolsAtOnceOneHasTheTable(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	var claims sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		s := d.open()
		claims.Go(func() { errs[i] = s.ClaimPool(ctx, string(rune('a'+i)), time.Minute) })
	}
	claims.Wait()
	won := 0
	for _, err := range errs {
		var other *PoolError
		if err == nil {
			won++
			continue
		}
		require.True(t, errors.As(err, &other), "%v", err)
	}
	require.Equal(t, 1, won)
}

// The table has one row, and is found by its key.
func TestClaimingAPoolReadsOneRow(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	plan := explain(t, d.open(), readPoolName)
	require.Contains(t, plan, "on outlane_pool p")
	require.NotContains(t, plan, "outbox_events")
	conn := pgtest.Connect(t, d.url)
	_, err := conn.Exec(ctx, "INSERT INTO outlane_pool (singleton, pool) VALUES (false, 'x')")
	require.Error(t, err)
}
