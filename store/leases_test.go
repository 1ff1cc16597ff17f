package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
)

// What the statements of the lease backend do for its protocol is tested by the contract suite in package lease. Here is what concerns the
// database.

type poolMember struct {
	duration time.Duration
	leaving  bool
	renewal  string
}

// readAll reads the pool; leases is nil if their digest is the known one.
func readAll(t testing.TB, s *Store, known string) (members map[string]poolMember, leases map[int]string, digest string) {
	t.Helper()
	members = map[string]poolMember{}
	digest, err := s.ReadPool(ctx, known, func(id string, d time.Duration, leaving bool, _, renewal string) {
		members[id] = poolMember{d, leaving, renewal}
	}, func(p int, holder, version string) {
		if leases == nil {
			leases = map[int]string{}
		}
		leases[p] = holder + "@" + version
	})
	require.NoError(t, err)
	return members, leases, digest
}

func TestAPoolAtRestSendsNoLeases(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	_, leases, digest := readAll(t, s, "")
	require.Len(t, leases, testPartitions)
	require.NoError(t, s.JoinPool(ctx, "a", time.Second, false, ""))
	members, leases, again := readAll(t, s, digest)
	require.Nil(t, leases)
	require.Equal(t, digest, again)
	require.Contains(t, members, "a")

	for _, change := range []string{
		"UPDATE outlane_leases SET holder = 'a' WHERE partition = 3",
		"UPDATE outlane_leases SET holder = 'b' WHERE partition = 3",
		"UPDATE outlane_leases SET holder = '', transitions = 7 WHERE partition = 3",
		"UPDATE outlane_leases SET transitions = 8 WHERE partition = 3",
		"UPDATE outlane_leases SET holder = CASE partition WHEN 4 THEN 'x' ELSE 'y' END WHERE partition IN (4, 5)",
		"UPDATE outlane_leases SET holder = CASE partition WHEN 4 THEN 'y' ELSE 'x' END WHERE partition IN (4, 5)",
		"DELETE FROM outlane_leases WHERE partition = 9",
		"DELETE FROM outlane_leases",
	} {
		before := digest
		d.exec(change)
		_, _, digest = readAll(t, s, before)
		require.NotEqual(t, before, digest, change)
	}
	_, leases, digest = readAll(t, s, digest)
	require.Nil(t, leases)
	require.NotEmpty(t, digest, "also of no leases")
}

func TestOddMembersCanBeRead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.exec(`INSERT INTO outlane_members (id, duration, renewals, joined_at, renewed_at) VALUES
		('', '1.5 s', 0, now(), now()), ('months', '1 month', -3, '-infinity', 'infinity'), ('back', '-1 s', 1, '0044-03-15 BC', now()),
		('long', '170000000 years', 1, now(), now()), ('full', '1 s', 9223372036854775807, now(), now())`)
	members, _, _ := readAll(t, s, "")
	require.Equal(t, 1500*time.Millisecond, members[""].duration)
	require.Equal(t, 30*24*time.Hour, members["months"].duration)
	require.Equal(t, -time.Second, members["back"].duration)
	require.Zero(t, members["long"].duration)

	for id, m := range members {
		found, err := s.RenewMember(ctx, id, time.Second, false, "")
		require.NoError(t, err, id)
		require.True(t, found)
		gone, err := s.BuryMember(ctx, id, m.renewal)
		require.NoError(t, err)
		require.False(t, gone, "%s was renewed", id)
	}
	members, _, _ = readAll(t, s, "")
	for id, m := range members {
		gone, err := s.BuryMember(ctx, id, m.renewal)
		require.NoError(t, err)
		require.True(t, gone)
	}
	if one[bool](d, "SELECT current_setting('server_version_num')::int >= 170000") {
		d.exec("INSERT INTO outlane_members (id, duration) VALUES ('endless', 'infinity'), ('and back', '-infinity')")
		members, _, _ = readAll(t, s, "")
		require.Zero(t, members["endless"].duration)
		require.Zero(t, members["and back"].duration)
	}
}

func TestChangesOfThePoolAreNotified(t *testing.T) {
	t.Parallel()
	const schema = `Out "box's" schema`
	url := pgtest.Database(t)
	_, err := migrations.Up(ctx, url, schema, migrations.Options{Partitions: testPartitions})
	require.NoError(t, err)
	s := openURL(t, url, func(c *Config) { c.Schema = schema })
	other := openURL(t, url, func(c *Config) { c.Schema = schema })

	listen, cancel := context.WithCancel(ctx)
	heard := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() { ended <- s.ListenPool(listen, func() { heard <- struct{}{} }) }()
	<-heard // it has begun

	for what, change := range map[string]func() error{
		"join": func() error { return other.JoinPool(ctx, "a", time.Second, false, "") },
		"swap": func() error {
			_, err := other.SwapLeases(ctx, []int{1, 2}, []string{"", ""}, []string{"0", "0"}, []string{"a", "a"})
			return err
		},
		"create": func() error {
			_, err := other.SwapLeases(ctx, []int{99}, []string{""}, []string{""}, []string{"a"})
			return err
		},
		"leaving": func() error { _, err := other.RenewMember(ctx, "b", time.Second, true, ""); return err },
		"leave":   func() error { return other.LeavePool(ctx, "c") },
		"bury":    func() error { _, err := other.BuryMember(ctx, "nobody", ""); return err },
	} {
		for _, id := range []string{"b", "c"} {
			require.NoError(t, other.JoinPool(ctx, id, time.Second, false, ""))
			<-heard
		}
		require.NoError(t, change(), what)
		<-heard
	}
	found, err := other.RenewMember(ctx, "b", time.Second, false, "")
	require.NoError(t, err)
	require.True(t, found)
	done, err := other.SwapLeases(ctx, []int{1}, []string{"x"}, []string{"0"}, []string{"y"})
	require.NoError(t, err)
	require.Empty(t, done)
	require.NoError(t, other.JoinPool(ctx, "last", time.Second, false, ""))
	<-heard
	require.Empty(t, heard, "neither renewals nor swaps without effect are notified")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestAWorkersRoleMayKeepLeases(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	role, url := pgtest.Role(t, d.url)
	require.NoError(t, migrations.Grants(ctx, d.url, "public", migrations.Roles{Worker: role}))
	s := openURL(t, url)
	require.NoError(t, s.JoinPool(ctx, "a", time.Second, false, ""))
	_, err := s.RenewMember(ctx, "a", time.Second, true, "")
	require.NoError(t, err)
	members, leases, _ := readAll(t, s, "")
	require.Len(t, members, 1)
	require.Len(t, leases, testPartitions)
	done, err := s.SwapLeases(ctx, []int{1, 50}, []string{"", ""}, []string{"0", ""}, []string{"a", "a"})
	require.NoError(t, err)
	require.Len(t, done, 2)
	require.NoError(t, s.LeavePool(ctx, "a"))
	_, err = s.BuryMember(ctx, "a", "")
	require.NoError(t, err)
}

func TestASwapWaitsForAnotherOfTheSameLease(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	tx := begin(t, d.conn)
	_, err := tx.Exec(ctx, "UPDATE outlane_leases SET holder = 'person' WHERE partition = 5")
	require.NoError(t, err)
	var swap sync.WaitGroup
	var done []int
	var swapErr error
	swap.Go(func() {
		done, swapErr = s.SwapLeases(ctx, []int{4, 5, 6}, []string{"", "", ""}, []string{"0", "0", "0"}, []string{"a", "a", "a"})
	})
	watcher := pgtest.Connect(t, d.url)
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, watcher.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND datname = current_database() AND query LIKE '%outlane_leases%')`).Scan(&waits))
		return waits
	}, ceiling, 5*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	swap.Wait()
	require.NoError(t, swapErr)
	require.ElementsMatch(t, []int{4, 6}, done, "the one that was changed meanwhile is left alone")
	require.Equal(t, "person", one[string](d, "SELECT holder FROM outlane_leases WHERE partition = 5"))
}

// BenchmarkReadPool is what each member asks five times a second while the pool is at rest.
func BenchmarkReadPool(b *testing.B) {
	for _, size := range []struct{ partitions, members int }{{64, 5}, {1024, 100}, {4096, 100}} {
		b.Run(fmt.Sprintf("%dx%d", size.partitions, size.members), func(b *testing.B) {
			d := databaseAt(b, pgtest.Migrated(b, size.partitions))
			s := d.open()
			for i := range size.members {
				require.NoError(b, s.JoinPool(ctx, strings.Repeat("x", 30)+fmt.Sprint(i), time.Second, false, ""))
			}
			d.exec("UPDATE outlane_leases SET holder = 'holder-' || partition % 100, transitions = partition")
			d.exec("VACUUM ANALYZE outlane_leases, outlane_members")
			_, _, digest := readAll(b, s, "")
			for b.Loop() {
				readAll(b, s, digest)
			}
		})
	}
}
