package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerifyPages(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	ids := d.insert("S", "k", 5)
	d.exec("UPDATE outbox_events SET seq = 3 WHERE seq IN (2, 4)") // as after a sequence that was set back
	seqs := func(after, upto int64) []int64 {
		page, err := s.VerifyPage(context.Background(), after, upto)
		require.NoError(t, err)
		var seqs []int64
		for _, row := range page {
			require.Contains(t, ids, row.ID)
			seqs = append(seqs, row.Seq)
		}
		return seqs
	}
	require.Equal(t, []int64{1, 3, 3, 3, 5}, seqs(0, 100))
	require.Equal(t, []int64{3, 3, 3}, seqs(1, 3))
	require.Empty(t, seqs(5, 100))
	for after, want := range map[int64]int64{0: 1, 1: 3, 3: 5, 5: 0} {
		next, err := s.VerifyNext(context.Background(), after)
		require.NoError(t, err)
		require.Equal(t, want, next)
	}
}

func TestVerifyRowFields(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.exec("INSERT INTO outbox_events (id, stream, topic, partition_key) SELECT v, 'S', 'a.b', 'k' FROM unnest($1::text[]) v",
		[]string{"plain", "open", "retried", "skipped", "freed", "parked", "released"})
	d.exec("UPDATE outbox_events SET processed = true WHERE id = 'plain'")
	d.exec(`INSERT INTO outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks, resolved_at, resolution)
		SELECT id, seq, stream, partition, partition_key, topic, 'r', 'e', 1, id IN ('open', 'freed'),
		CASE WHEN id <> 'open' THEN to_timestamp(100.5) END, CASE id WHEN 'retried' THEN 'retried' WHEN 'freed' THEN 'retried' WHEN 'skipped' THEN 'skipped' END
		FROM outbox_events WHERE id IN ('open', 'retried', 'skipped', 'freed')`)
	d.exec(`INSERT INTO outbox_parked_events (event_id, seq, stream, partition, partition_key, released_at)
		SELECT id, seq, stream, partition, partition_key, CASE WHEN id = 'released' THEN to_timestamp(100.5) END FROM outbox_events WHERE id IN ('parked', 'released')`)
	rows, err := s.VerifyByID(context.Background(), []string{"plain", "open", "retried", "skipped", "freed", "parked", "released", "absent"})
	require.NoError(t, err)
	got := map[string]VerifyRow{}
	for _, row := range rows {
		require.Equal(t, "S", row.Stream)
		require.Equal(t, "a.b", row.Topic)
		require.Equal(t, "k", row.Key)
		require.NotZero(t, row.Xact)
		require.LessOrEqual(t, row.XactOldest, row.Xact)
		got[row.ID] = VerifyRow{
			Processed: row.Processed, DeadLetter: row.DeadLetter, Resolved: row.Resolved, Skipped: row.Skipped, Blocks: row.Blocks, Parked: row.Parked, Released: row.Released,
		}
	}
	require.Equal(t, map[string]VerifyRow{
		"plain":    {Processed: true},
		"open":     {DeadLetter: true, Blocks: true},
		"retried":  {DeadLetter: true, Resolved: true},
		"skipped":  {DeadLetter: true, Resolved: true, Skipped: true},
		"freed":    {DeadLetter: true, Resolved: true, Blocks: true, Released: 100_500_000},
		"parked":   {Parked: true},
		"released": {Parked: true, Released: 100_500_000},
	}, got)
	bySeq, err := s.VerifyBySeq(context.Background(), []int64{rows[0].Seq, 1000})
	require.NoError(t, err)
	require.Equal(t, rows[:1], bySeq)
}

func TestVerifyPlans(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.insert("S", "k", 1000)
	d.exec("VACUUM ANALYZE outbox_events")
	s := d.open()
	plan := explain(t, s, sqlVerifyPage, "1", "100")
	require.Contains(t, plan, "Index Scan using outbox_events_seq_order")
	require.NotContains(t, plan, "Seq Scan on outbox_events")
	require.Contains(t, explain(t, s, sqlVerifyNext, "1"), "outbox_events_seq_order")
	plan = explain(t, s, sqlVerifyByID, "'{a,b}'")
	require.Contains(t, plan, "Index Scan using outbox_events_pkey")
	plan = explain(t, s, sqlVerifyBySeq, "'{1,2}'")
	require.Contains(t, plan, "Index Scan using outbox_events_seq_order")
}
