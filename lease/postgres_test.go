package lease_test

import (
	"cmp"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
	"github.com/outlane/outlane/store"
)

var _ lease.Database = (*store.Store)(nil)

// postgresPool is a pool in a real database.
type postgresPool struct {
	url  string
	db   *store.Store // to read records
	conn *pgx.Conn    // to edit them as a person does
}

func newPostgresPool(t *testing.T, via func(url string) string) *postgresPool {
	t.Helper()
	url := pgtest.Migrated(t, leasetest.Partitions)
	return &postgresPool{url: via(url), db: openStore(t, url), conn: pgtest.Connect(t, url)}
}

func direct(url string) string { return url }

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	db, err := store.Open(store.Config{URL: url, MaxConns: 2, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

func (p *postgresPool) Backend(t testing.TB) lease.Backend { return lease.NewPostgres(openStore(t, p.url)) }

func (p *postgresPool) read(t testing.TB) (members []lease.Member, leases []lease.Lease) {
	t.Helper()
	_, err := p.db.ReadPool(t.Context(), "", func(id string, d time.Duration, leaving bool, renewal string) {
		members = append(members, lease.Member{ID: id, Duration: d, Leaving: leaving, Renewal: renewal})
	}, func(partition int, holder, version string) {
		leases = append(leases, lease.Lease{Partition: partition, Holder: holder, Version: version})
	})
	require.NoError(t, err)
	slices.SortFunc(members, func(a, b lease.Member) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(leases, func(a, b lease.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	return members, leases
}

func (p *postgresPool) Members(t testing.TB) []lease.Member {
	members, _ := p.read(t)
	return members
}

func (p *postgresPool) Leases(t testing.TB) []lease.Lease {
	_, leases := p.read(t)
	return leases
}

func (p *postgresPool) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := p.conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (p *postgresPool) SetHolder(t testing.TB, partition int, holder string) {
	p.exec(t, "INSERT INTO outlane_leases (partition, holder) VALUES ($1, $2) ON CONFLICT (partition) DO UPDATE SET holder = excluded.holder", partition, holder)
}

func (p *postgresPool) Disturb(t testing.TB, partition int) {
	p.exec(t, `UPDATE outlane_leases SET transitions = CASE WHEN transitions = -5 THEN 9223372036854775807 ELSE -5 END, acquired_at = 'infinity'
		WHERE partition = $1`, partition)
}

func (p *postgresPool) DeleteLease(t testing.TB, partition int) {
	p.exec(t, "DELETE FROM outlane_leases WHERE partition = $1", partition)
}

func (p *postgresPool) SetDuration(t testing.TB, id string, d time.Duration) {
	p.exec(t, "UPDATE outlane_members SET duration = $2::bigint * interval '1 microsecond' WHERE id = $1", id, d.Microseconds())
}

func TestContractOnPostgres(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Pool { return newPostgresPool(t, direct) })
}
