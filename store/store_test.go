package store

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/partition"
)

const testPartitions = 16

// ceiling bounds every wait.
const ceiling = time.Minute

var ctx = context.Background()

// database is an outbox in the schema public, and a superuser's session in it.
type database struct {
	t    testing.TB
	url  string
	conn *pgx.Conn
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	return databaseAt(t, pgtest.Migrated(t, testPartitions))
}

func databaseAt(t testing.TB, url string) *database {
	t.Helper()
	return &database{t: t, url: url, conn: pgtest.Connect(t, url)}
}

// open returns a Store on the database.
func (d *database) open(change ...func(*Config)) *Store {
	d.t.Helper()
	return openURL(d.t, d.url, change...)
}

func openURL(t testing.TB, url string, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{URL: url, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func (d *database) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.conn.Exec(ctx, sql, args...)
	require.NoError(d.t, err, sql)
}

// insert adds n events of one key to a stream, each with its own topic event.<i>, and returns their ids in order.
func (d *database) insert(stream, key string, n int) []string {
	d.t.Helper()
	return insertBy(d.t, d.conn, stream, key, n)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func insertBy(t testing.TB, q querier, stream, key string, n int) []string {
	t.Helper()
	rows, err := q.Query(ctx, `WITH i AS (INSERT INTO outbox_events (stream, topic, partition_key, payload)
		SELECT $1, 'event.' || n, $2, jsonb_build_object('n', n) FROM generate_series(1, $3::int) n RETURNING id, seq)
		SELECT id FROM i ORDER BY seq`, stream, key, n)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return ids
}

// one returns a statement's only value.
func one[T any](d *database, sql string, args ...any) T {
	d.t.Helper()
	rows, err := d.conn.Query(ctx, sql, args...)
	require.NoError(d.t, err, sql)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(d.t, err, sql)
	return v
}

// keyIn returns a key of a partition; another number gives another key.
func keyIn(p, number int) string {
	for n := 0; ; n++ {
		key := fmt.Sprintf("key-%d", n)
		if partition.Of(key, testPartitions) != p {
			continue
		}
		if number == 0 {
			return key
		}
		number--
	}
}

// claimAll makes the store the owner of partitions and returns their epochs.
func claimAll(t testing.TB, s *Store, owner string, partitions ...int) map[int]int64 {
	t.Helper()
	claims, err := s.Claim(ctx, owner, partitions)
	require.NoError(t, err)
	require.Len(t, claims, len(partitions))
	epochs := make(map[int]int64)
	for _, c := range claims {
		epochs[c.Partition] = c.Epoch
	}
	return epochs
}

func fetchIDs(t testing.TB, s *Store, lane Lane) []string {
	t.Helper()
	events, _, err := s.Fetch(ctx, lane, 0, 1<<62, nil, 10_000, 1<<30)
	require.NoError(t, err)
	return idsOf(events)
}

func idsOf(events []Event) []string {
	ids := make([]string, 0, len(events))
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func seqsOf(events []Event) []int64 {
	seqs := make([]int64, 0, len(events))
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func migrateUp(t testing.TB, url string) {
	t.Helper()
	_, err := migrations.Up(ctx, url, "public", migrations.Options{Partitions: testPartitions})
	require.NoError(t, err)
}
