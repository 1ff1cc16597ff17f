package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestMarkSettlesManyLanesAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	a, b, c := d.insert("A", keyIn(1, 0), 3), d.insert("B", keyIn(1, 0), 2), d.insert("A", keyIn(2, 0), 2)
	epochs := claimAll(t, s, "me", 1, 2)
	require.NoError(t, s.Attempt(ctx, 1, epochs[1], a[0], 3, "did not work yet"))
	fenced, err := s.Mark(ctx, []Mark{
		{Lane: Lane{"A", 1}, Epoch: epochs[1], IDs: a[:2]},
		{Lane: Lane{"B", 1}, Epoch: epochs[1], IDs: b},
		{Lane: Lane{"A", 2}, Epoch: epochs[2], IDs: c[:1]},
	})
	require.NoError(t, err)
	require.Empty(t, fenced)
	require.Equal(t, a[2:], fetchIDs(t, s, Lane{"A", 1}))
	require.Empty(t, fetchIDs(t, s, Lane{"B", 1}))
	require.Equal(t, c[1:], fetchIDs(t, s, Lane{"A", 2}))
	require.Equal(t, 5, one[int](d, "SELECT count(*) FROM outbox_events WHERE processed AND processed_at IS NOT NULL AND error IS NULL"))
	require.Equal(t, 3, one[int](d, "SELECT attempts FROM outbox_events WHERE id = $1", a[0]))
	require.Equal(t, 2, one[int](d, "SELECT count(*) FROM outbox_events WHERE NOT processed AND processed_at IS NULL"))

	before := one[time.Time](d, "SELECT processed_at FROM outbox_events WHERE id = $1", a[0])
	fenced, err = s.Mark(ctx, []Mark{{Lane: Lane{"A", 1}, Epoch: epochs[1], IDs: append([]string{"unknown"}, a[:2]...)}})
	require.NoError(t, err)
	require.Empty(t, fenced)
	require.True(t, before.Equal(one[time.Time](d, "SELECT processed_at FROM outbox_events WHERE id = $1", a[0])), "marked once")
	fenced, err = s.Mark(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, fenced)
}

// A row may have moved since it was read, and another may be where it was: the id decides.
func TestMarkFindsRowsThatAreNotInTheirPlaces(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", keyIn(1, 0), 6)
	epoch := claimAll(t, s, "me", 1)[1]
	arrived, err := s.Arrivals(ctx, 0, 100, nil, []int{1})
	require.NoError(t, err)
	fetched, _, err := s.Fetch(ctx, Lane{"A", 1}, 0, 100, nil, 100, 1<<20)
	require.NoError(t, err)
	require.Len(t, fetched, 6)
	marked := func(want int, of ...Event) {
		t.Helper()
		m := Mark{Lane: Lane{"A", 1}, Epoch: epoch}
		for _, e := range of {
			require.True(t, e.Place.Valid)
			m.IDs, m.Places = append(m.IDs, e.ID), append(m.Places, e.Place)
		}
		fenced, err := s.Mark(ctx, []Mark{m})
		require.NoError(t, err)
		require.Empty(t, fenced)
		require.Equal(t, want, one[int](d, "SELECT count(*) FROM outbox_events WHERE processed"))
	}
	marked(1, fetched[0])
	require.Equal(t, arrived[1].Place, fetched[1].Place)
	marked(2, arrived[1])
	require.NoError(t, s.Attempt(ctx, 1, epoch, fetched[2].ID, 1, ""))
	marked(3, fetched[2])
	marked(3, fetched[2])
	elsewhere := fetched[3]
	elsewhere.Place = fetched[4].Place
	marked(4, elsewhere)
	require.Equal(t, []string{fetched[4].ID, fetched[5].ID}, fetchIDs(t, s, Lane{"A", 1}))
	gone := fetched[4]
	gone.ID = "gone"
	marked(4, gone)
	marked(5, gone, fetched[5])
	claimAll(t, s, "other", 1)
	m := Mark{Lane: Lane{"A", 1}, Epoch: epoch, IDs: []string{fetched[4].ID}, Places: []Place{fetched[4].Place}}
	fenced, err := s.Mark(ctx, []Mark{m})
	require.NoError(t, err)
	require.Len(t, fenced, 1)
	require.Equal(t, []string{fetched[4].ID}, fetchIDs(t, s, Lane{"A", 1}))
}

func TestMarkDoesNotWaitForLockedRows(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	ids := d.insert("A", keyIn(1, 0), 2)
	marks := []Mark{{Lane: Lane{"A", 1}, Epoch: claimAll(t, s, "me", 1)[1], IDs: ids}}
	other, err := pgx.Connect(ctx, d.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(ctx)) }()
	operator, err := other.Begin(ctx)
	require.NoError(t, err)
	_, err = operator.Exec(ctx, "SELECT FROM outbox_events WHERE id = $1 FOR UPDATE", ids[1])
	require.NoError(t, err)

	_, err = s.Mark(ctx, marks)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "55P03", refused.Code, "it is the lock that it waited for")
	require.Zero(t, one[int](d, "SELECT count(*) FROM outbox_events WHERE processed"))
	require.NoError(t, operator.Rollback(ctx))
	_, err = s.Mark(ctx, marks)
	require.NoError(t, err)
	require.Equal(t, 2, one[int](d, "SELECT count(*) FROM outbox_events WHERE processed"))
}

func TestMarkUnderAnotherEpochChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	a, b, c := d.insert("A", keyIn(1, 0), 1), d.insert("B", keyIn(1, 0), 1), d.insert("A", keyIn(2, 0), 1)
	old := claimAll(t, s, "old", 1, 2)
	claimAll(t, s, "new", 1)
	fenced, err := s.Mark(ctx, []Mark{
		{Lane: Lane{"A", 1}, Epoch: old[1], IDs: a},
		{Lane: Lane{"A", 2}, Epoch: old[2], IDs: c},
		{Lane: Lane{"B", 1}, Epoch: old[1], IDs: b},
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []Lane{{"A", 1}, {"B", 1}}, fenced)
	require.Equal(t, c[0], one[string](d, "SELECT id FROM outbox_events WHERE processed"))

	// A worker that lost the partition and has it again: what it sent under the old epoch is refused, what it sends now is not.
	again := claimAll(t, s, "old", 1)
	fenced, err = s.Mark(ctx, []Mark{
		{Lane: Lane{"A", 1}, Epoch: old[1], IDs: a},
		{Lane: Lane{"B", 1}, Epoch: again[1], IDs: b},
	})
	require.NoError(t, err)
	require.Equal(t, []Lane{{"A", 1}}, fenced)
	require.Equal(t, a[0], one[string](d, "SELECT id FROM outbox_events WHERE NOT processed"))

	// Somebody else's rows are not marked by way of a partition of one's own.
	fenced, err = s.Mark(ctx, []Mark{{Lane: Lane{"A", 2}, Epoch: old[2], IDs: a}})
	require.NoError(t, err)
	require.Empty(t, fenced)
	require.False(t, one[bool](d, "SELECT processed FROM outbox_events WHERE id = $1", a[0]))
	fenced, err = s.Mark(ctx, []Mark{{Lane: Lane{"A", 4000}, Epoch: 1, IDs: a}})
	require.NoError(t, err)
	require.Equal(t, []Lane{{"A", 4000}}, fenced)
}

// Marks stay on their rows' pages, so that they touch no index, even while a long reader keeps all old versions.
func TestMarksAreHOT(t *testing.T) {
	t.Parallel()
	for _, reader := range []bool{false, true} {
		t.Run(fmt.Sprintf("reader=%t", reader), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			s := d.open()
			const events, batch = 6000, 250
			d.exec(`INSERT INTO outbox_events (stream, topic, payload) SELECT 'S' || n % 3, 'payout.generated',
				jsonb_build_object('team_id', 't' || n % 50, 'note', repeat('x', 140)) FROM generate_series(1, $1::int) n`, events)
			if reader {
				tx, err := pgtest.Connect(t, d.url).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(ctx) }()
				_, err = tx.Exec(ctx, "SELECT count(*) FROM outbox_events")
				require.NoError(t, err)
			}
			all := make([]int, testPartitions)
			for p := range all {
				all[p] = p
			}
			epochs := claimAll(t, s, "me", all...)
			marked := 0
			for p := range all {
				for _, stream := range []string{"S0", "S1", "S2"} {
					lane := Lane{stream, p}
					for after, more := int64(0), true; more; {
						var page []Event
						var err error
						page, more, err = s.Fetch(ctx, lane, after, 1<<62, nil, batch, 1<<20)
						require.NoError(t, err)
						if len(page) == 0 {
							break
						}
						fenced, err := s.Mark(ctx, []Mark{{Lane: lane, Epoch: epochs[p], IDs: idsOf(page)}})
						require.NoError(t, err)
						require.Empty(t, fenced)
						after, marked = page[len(page)-1].Seq, marked+len(page)
					}
				}
			}
			require.Equal(t, events, marked)
			s.Close() // sessions report their statistics at their end
			var updated, hot int
			require.Eventually(t, func() bool {
				require.NoError(t, d.conn.QueryRow(ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'outbox_events'").
					Scan(&updated, &hot))
				return updated >= events
			}, ceiling, 10*time.Millisecond)
			require.Equal(t, events, updated)
			require.GreaterOrEqual(t, hot, events*9/10)
			t.Logf("%d of %d marks were HOT", hot, updated)
		})
	}
}
