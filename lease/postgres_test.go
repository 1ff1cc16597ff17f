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
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
	"github.com/outlane/outlane/migrations"
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

func (p *postgresPool) Backend(t testing.TB) lease.Backend {
	return lease.NewPostgres(openStore(t, p.url))
}

func (p *postgresPool) read(t testing.TB) (members []lease.Member, leases []lease.Lease) {
	t.Helper()
	_, err := p.db.ReadPool(t.Context(), "", func(id string, d time.Duration, leaving bool, weights, renewal string) {
		members = append(members, lease.Member{ID: id, Duration: d, Leaving: leaving, Weights: weights, Renewal: renewal})
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
	p.exec(t, `UPDATE outlane_leases SET transitions = CASE WHEN transitions = 9223372036854775807 THEN -5 ELSE 9223372036854775807 END, acquired_at = 'infinity'
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

// Behind a pooler there is no LISTEN, and statements go another way. The cases are those that differ by it.
func TestContractThroughPgbouncer(t *testing.T) {
	t.Parallel()
	names := []string{
		"a member joins, renews and leaves",
		"a swap takes effect only on what was seen",
		"of many takers one wins",
		"a watch shows all and confirms it",
		"one member holds all, five more get their shares",
		"a member that stops hands over without a gap",
		"a killed member's partitions are taken",
	}
	for _, c := range leasetest.Cases() {
		if !slices.Contains(names, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Test(t, newPostgresPool(t, func(url string) string { return pgtest.StartPgbouncer(t, url) }))
		})
	}
}

// privatePool is a pool on a server of its own, which the test may treat badly.
func privatePool(t *testing.T) (*pgtest.Server, *postgresPool) {
	t.Helper()
	server := pgtest.StartServer(t)
	url := server.Database("pool")
	_, err := migrations.Up(t.Context(), url, "public", migrations.Options{Partitions: leasetest.Partitions})
	require.NoError(t, err)
	return server, &postgresPool{url: url, db: openStore(t, url)}
}

const (
	duration = 3 * time.Second
	ceiling  = leasetest.Ceiling
)

func settle(t *testing.T, pool leasetest.Pool, workers ...*leasetest.Worker) {
	t.Helper()
	require.Eventually(t, func() bool { return leasetest.Unsettled(t, pool, workers) == "" }, ceiling, 10*time.Millisecond)
}

// outlast waits until every worker has been without its backend for longer than a record holds.
func outlast(t *testing.T, workers []*leasetest.Worker, what string) {
	t.Helper()
	for _, w := range workers {
		require.Eventually(t, func() bool {
			s := w.Status()
			return s.Err != nil && time.Since(s.SeenAt) > duration+duration/2
		}, ceiling, 10*time.Millisecond, what)
	}
}

func TestAServerThatIsAwayForLongCostsNoPartition(t *testing.T) {
	t.Parallel()
	server, pool := privatePool(t)
	workers := []*leasetest.Worker{
		leasetest.Start(t, pool, "a", duration), leasetest.Start(t, pool, "b", duration), leasetest.Start(t, pool, "c", duration),
	}
	settle(t, pool, workers...)
	server.Stop(postgres.Immediate)
	outlast(t, workers, "a server that crashed")
	server.Start()
	for _, w := range workers {
		require.Eventually(t, func() bool { return w.Status().Err == nil }, ceiling, 10*time.Millisecond)
	}
	server.Freeze()
	outlast(t, workers, "a server that is silent")
	server.Thaw()
	settle(t, pool, workers...)
	for _, w := range workers {
		_, lost := w.Counts()
		require.Zero(t, lost)
	}

	server.Freeze()
	stopped := make(chan error, 1)
	go func() { stopped <- workers[0].Stop() }()
	require.Error(t, <-stopped, "it does not hang with the server")
	require.Empty(t, workers[0].Has())
	server.Thaw()
	settle(t, pool, workers[1:]...)
}
