package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

// quiet is a database on a server where nothing else takes transaction ids.
func quiet(t *testing.T) *database {
	t.Helper()
	url := pgtest.StartServer(t, pgtest.Setting("autovacuum", "off")).URL("postgres")
	migrateUp(t, url)
	return databaseAt(t, url)
}

func begin(t testing.TB, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	return tx
}

func xid(t testing.TB, tx pgx.Tx) uint64 {
	t.Helper()
	var id uint64
	require.NoError(t, tx.QueryRow(ctx, "SELECT pg_current_xact_id()").Scan(&id))
	return id
}

func poll(t testing.TB, s *Store) Poll {
	t.Helper()
	p, err := s.Poll(ctx)
	require.NoError(t, err)
	require.True(t, slices.IsSorted(p.InProgress))
	return p
}

// A snapshot's xmax is one past the last transaction that has ended: where nothing ends, those that are open are not in the snapshot's list.
func TestPollListsOpenTransactionsThatTheSnapshotDoesNot(t *testing.T) {
	t.Parallel()
	d := quiet(t)
	s := d.open()
	require.Empty(t, poll(t, s).InProgress)
	require.Zero(t, poll(t, s).LastSeq)

	older, younger := begin(t, d.conn), begin(t, pgtest.Connect(t, d.url))
	insertBy(t, older, "A", "k", 1)
	insertBy(t, younger, "A", "k", 2)
	p := poll(t, s)
	require.EqualValues(t, 3, p.LastSeq)
	require.Equal(t, []uint64{xid(t, older), xid(t, younger)}, p.InProgress)
	require.GreaterOrEqual(t, xid(t, older), p.Xmax, "the snapshot itself knew of it")

	require.NoError(t, older.Commit(ctx))
	require.Equal(t, []uint64{xid(t, younger)}, poll(t, s).InProgress)
	require.NoError(t, younger.Rollback(ctx))
	require.Empty(t, poll(t, s).InProgress)
}

func TestPollStaysShortWithManySavepoints(t *testing.T) {
	t.Parallel()
	d := quiet(t)
	s := d.open()
	tx := begin(t, d.conn)
	id := xid(t, tx)
	_, err := tx.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		BEGIN INSERT INTO outbox_events (stream, topic) VALUES ('A', 't'); EXCEPTION WHEN division_by_zero THEN NULL; END;
	END LOOP; END $$`, unlistedMax+100))
	require.NoError(t, err)
	p := poll(t, s)
	require.EqualValues(t, unlistedMax+100, p.LastSeq)
	require.Contains(t, p.InProgress, id)
	require.Less(t, len(p.InProgress), 10)
	require.NoError(t, tx.Commit(ctx))
	require.Empty(t, poll(t, s).InProgress)
}

func TestPollArrivals(t *testing.T) {
	t.Parallel()
	d := quiet(t)
	s := d.open()
	d.insert("A", keyIn(1, 0), 3)
	p, rows, complete, err := s.PollArrivals(ctx, 1, 1000, []int64{1}, []int{1})
	require.NoError(t, err)
	require.True(t, complete)
	require.EqualValues(t, 3, p.LastSeq)
	var seqs []int64
	for _, e := range rows {
		require.Equal(t, "A", e.Stream)
		seqs = append(seqs, e.Seq)
	}
	require.Equal(t, []int64{1, 2, 3}, seqs)

	// A poll that is made again is newer than the rows.
	tx := begin(t, d.conn)
	_, err = tx.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		BEGIN INSERT INTO outbox_events (stream, topic) VALUES ('A', 't'); EXCEPTION WHEN division_by_zero THEN NULL; END;
	END LOOP; END $$`, unlistedMax+100))
	require.NoError(t, err)
	p, rows, complete, err = s.PollArrivals(ctx, 1, 1000, nil, []int{1})
	require.NoError(t, err)
	require.False(t, complete)
	require.Empty(t, rows)
	require.Less(t, len(p.InProgress), 10)
	require.NoError(t, tx.Rollback(ctx))
}

func TestPollSeesPreparedTransactions(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	tx := begin(t, d.conn)
	insertBy(t, tx, "A", "k", 1)
	id := xid(t, tx)
	_, err := tx.Exec(ctx, "PREPARE TRANSACTION 'poll'")
	require.NoError(t, err)
	require.Contains(t, poll(t, s).InProgress, id)
	d.exec("ROLLBACK PREPARED 'poll'")
	require.NotContains(t, poll(t, s).InProgress, id)
}

// Once all that a poll listed as open have ended, no number at or under its LastSeq appears any more.
func TestNothingAppearsBehindAPollWhoseTransactionsHaveEnded(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	const writers, transactions = 6, 60
	var running sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		conn := pgtest.Connect(t, d.url)
		random := rand.New(rand.NewPCG(1, uint64(w)))
		running.Go(func() {
			for i := range transactions {
				if err := writeSomehow(conn, random, fmt.Sprintf("w%d-%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { running.Wait(); close(done) }()

	type settled struct {
		last  int64
		count int
	}
	var waiting []Poll
	var results []settled
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		p := poll(t, s)
		waiting = append(waiting, p)
		waiting = slices.DeleteFunc(waiting, func(old Poll) bool {
			for _, x := range old.InProgress {
				if _, open := slices.BinarySearch(p.InProgress, x); open || x >= p.Xmax {
					return false
				}
			}
			results = append(results, settled{old.LastSeq, one[int](d, "SELECT count(*) FROM outbox_events WHERE seq <= $1", old.LastSeq)})
			return true
		})
	}
	require.Greater(t, len(results), 10)
	for _, r := range results {
		require.Equal(t, r.count, one[int](d, "SELECT count(*) FROM outbox_events WHERE seq <= $1", r.last), "a row appeared at or under %d", r.last)
	}
}

// writeSomehow inserts events in a transaction of a random kind.
func writeSomehow(conn *pgx.Conn, random *rand.Rand, name string) error {
	const insert = "INSERT INTO outbox_events (stream, topic) VALUES ('A', 't')"
	statements := []string{"BEGIN"}
	for range 1 + random.IntN(3) {
		statements = append(statements, insert, fmt.Sprintf("SELECT pg_sleep(%f)", random.Float64()*0.004))
	}
	switch random.IntN(5) {
	case 0:
		statements = append(statements, "ROLLBACK")
	case 1:
		statements = append(statements, "SAVEPOINT a", insert, "ROLLBACK TO a", insert, "COMMIT")
	case 2:
		statements = append(statements, "SAVEPOINT a", insert, "RELEASE a", "COMMIT")
	default:
		statements = append(statements, "COMMIT")
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", name, statement, err)
		}
	}
	return nil
}

// Isolation that takes one snapshot for both statements would take it before the sequence is read.
func TestEachStatementHasASnapshotOfItsOwn(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = 'serializable'", pgx.Identifier{d.conn.Config().Database}.Sanitize()))
	for _, pooler := range []string{PoolerNone, PoolerTransaction} {
		s := d.open(func(c *Config) { c.Pooler = pooler })
		var level string
		require.NoError(t, s.run(ctx, "x", call{sql: "SELECT current_setting('transaction_isolation')",
			row: func(r pgx.Rows) error { return r.Scan(&level) }}))
		require.Equal(t, "read committed", level, pooler)
	}
}

// statements records what is sent in batches.
type statements struct{ sent []string }

func (s *statements) TraceQueryStart(c context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return c
}
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *statements) TraceBatchStart(c context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return c
}
func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	s.sent = append(s.sent, q.SQL)
}
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestPollSendsItsStatementsInOrder(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, pooler := range []string{PoolerNone, PoolerTransaction} {
		s := d.open(func(c *Config) { c.Pooler = pooler })
		config := s.pool.Config()
		var sent statements
		config.ConnConfig.Tracer = &sent
		s.pool.Close()
		var err error
		s.pool, err = pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		poll(t, s)
		sequence, snapshot := slices.Index(sent.sent, s.text(pollSequence)), slices.Index(sent.sent, s.text(pollSnapshot))
		require.GreaterOrEqual(t, sequence, 0, pooler)
		require.Greater(t, snapshot, sequence, pooler)
	}
}

func TestPollKnowsTheServersStart(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	p := poll(t, s)
	require.False(t, p.Started.Before(one[time.Time](d, "SELECT pg_postmaster_start_time()")))
	require.True(t, p.Started.Equal(poll(t, s).Started))
	require.False(t, p.ReadOnly)
}

// The recovery may take back numbers that were seen, and a pool of connections may hide it.
func TestPollKnowsOfARecovery(t *testing.T) {
	t.Parallel()
	d := quiet(t)
	told := one[int](d, "SELECT current_setting('server_version_num')::int") >= 150000 // before, only lost connections tell
	before := poll(t, d.open())
	victim, other := pgtest.Connect(t, d.url), pgtest.Connect(t, d.url)
	require.NoError(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
	require.Eventually(t, func() bool { return other.Ping(ctx) != nil }, ceiling, 10*time.Millisecond, "the server ends all others")
	s := d.open()
	var after Poll
	require.Eventually(t, func() bool {
		var err error
		after, err = s.Poll(ctx)
		return err == nil
	}, ceiling, 10*time.Millisecond)
	require.Equal(t, told, after.Started.After(before.Started))
}

func TestHorizonOnlyRises(t *testing.T) {
	t.Parallel()
	s := newDatabase(t).open()
	poll(t, s)
	for _, step := range []struct{ save, want int64 }{{5, 5}, {3, 5}, {9, 9}} {
		require.NoError(t, s.SaveHorizon(ctx, step.save))
		h, err := s.Horizon(ctx)
		require.NoError(t, err)
		require.Equal(t, step.want, h)
	}
}

func TestSequenceThatWasSetBackIsNoticed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", "k", 10)
	require.False(t, poll(t, s).Backwards)
	d.exec("SELECT setval('outbox_events_seq', 4)")
	require.True(t, poll(t, s).Backwards)
	require.True(t, poll(t, s).Backwards, "until it is dealt with")
}

// A number that is seen elsewhere while a poll is under way may be higher than the one that the poll has read already.
func TestNumbersSeenDuringAPollAreNotHeldAgainstIt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", "k", 10)
	require.False(t, poll(t, s).Backwards)
	tx := begin(t, pgtest.Connect(t, d.url))
	_, err := tx.Exec(ctx, "LOCK TABLE outlane_config")
	require.NoError(t, err)
	polled := make(chan Poll, 1)
	go func() {
		p, _ := s.Poll(ctx)
		polled <- p
	}()
	require.Eventually(t, func() bool {
		return one[int](d, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, ceiling, 10*time.Millisecond)
	insertBy(t, tx, "A", "k", 10)
	s.seen.note(0, 20)
	require.NoError(t, tx.Commit(ctx))
	p := <-polled
	require.EqualValues(t, 10, p.LastSeq)
	require.False(t, p.Backwards)
}

func TestSequenceBehindASavedCursorIsNoticed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	old := d.open()
	epochs := claimAll(t, old, "old", 1)
	fenced, err := old.SaveCursors(ctx, []CursorSave{{Lane: Lane{"A", 1}, Epoch: epochs[1], Cursor: 50}})
	require.NoError(t, err)
	require.Empty(t, fenced)
	d.exec("SELECT setval('outbox_events_seq', 20)")

	s := d.open()
	require.False(t, poll(t, s).Backwards, "it knows of nothing yet")
	claimAll(t, s, "new", 1)
	require.True(t, poll(t, s).Backwards)
}

func TestSequenceBehindTheTableIsNoticed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.insert("A", "k", 10)
	d.exec("SELECT setval('outbox_events_seq', 1, false)") // a restore that left the sequence out
	s := d.open()
	require.False(t, poll(t, s).Backwards)
	highest, err := s.MaxSeq(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10, highest)
	require.True(t, poll(t, s).Backwards)
}

// A sequence that was set back and has passed all cursors again before anybody looked.
func TestTruncatedTableIsNoticedLater(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	old := d.open()
	epochs := claimAll(t, old, "old", 1)
	d.insert("A", keyIn(1, 0), 10)
	poll(t, old)
	save := []CursorSave{{Lane: Lane{"A", 1}, Epoch: epochs[1], Cursor: 10}}
	_, err := old.SaveCursors(ctx, save)
	require.NoError(t, err)
	require.NoError(t, old.SaveHorizon(ctx, 10))
	d.exec("TRUNCATE outbox_events RESTART IDENTITY")
	d.insert("A", keyIn(1, 0), 20)

	s := d.open()
	require.True(t, poll(t, s).Backwards)
	h, err := s.Horizon(ctx)
	require.NoError(t, err)
	require.Zero(t, h)
	claims, err := s.Claim(ctx, "new", []int{1})
	require.NoError(t, err)
	require.Equal(t, []LaneCursor{{Lane: Lane{"A", 1}}}, claims[0].Lanes)

	// Who still counts by the old sequence saves nothing.
	save[0].Epoch, save[0].Cursor = claims[0].Epoch, 99
	fenced, err := s.SaveCursors(ctx, save)
	require.NoError(t, err)
	require.Empty(t, fenced)
	require.NoError(t, old.SaveHorizon(ctx, 11))
	require.EqualValues(t, 10, one[int64](d, "SELECT cursor FROM outlane_lanes"))
	require.EqualValues(t, 10, one[int64](d, "SELECT seq FROM outlane_horizon"))

	require.NoError(t, s.SequenceReset(ctx, 20))
	require.False(t, poll(t, s).Backwards)
}

func TestSequenceResetStartsOverOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	a, b := d.open(), d.open()
	epochs := claimAll(t, a, "a", 1, 2)
	d.insert("A", "k", 10)
	poll(t, a)
	poll(t, b)
	_, err := a.SaveCursors(ctx, []CursorSave{{Lane: Lane{"A", 1}, Epoch: epochs[1], Cursor: 7}})
	require.NoError(t, err)
	require.NoError(t, a.SaveHorizon(ctx, 7))
	d.exec("SELECT setval('outbox_events_seq', 3)")
	d.insert("A", "k", 1) // a number is given twice
	require.True(t, poll(t, a).Backwards)
	require.True(t, poll(t, b).Backwards)

	var both sync.WaitGroup
	for _, s := range []*Store{a, b} {
		both.Go(func() {
			if err := s.SequenceReset(ctx, 4); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	after, err := a.Epochs(ctx, []int{1, 2, 3})
	require.NoError(t, err)
	require.Equal(t, map[int]int64{1: epochs[1] + 1, 2: epochs[2] + 1, 3: 1}, after, "raised once")
	require.Zero(t, one[int64](d, "SELECT cursor FROM outlane_lanes"))
	for _, s := range []*Store{a, b} {
		p := poll(t, s)
		require.False(t, p.Backwards)
		require.EqualValues(t, 1, p.Generation)
	}
	require.EqualValues(t, 10, poll(t, a).LastSeq, "past the highest number in the table")
	d.insert("A", "k", 1)
	require.EqualValues(t, 11, one[int64](d, "SELECT max(seq) FROM outbox_events"))
	h, err := a.Horizon(ctx)
	require.NoError(t, err)
	require.Zero(t, h)
}

func TestHorizonOfAnEarlierGenerationIsNotSaved(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	stale, s := d.open(), d.open()
	poll(t, stale)
	poll(t, s)
	require.NoError(t, s.SequenceReset(ctx, 0))
	require.NoError(t, stale.SaveHorizon(ctx, 1000))
	h, err := s.Horizon(ctx)
	require.NoError(t, err)
	require.Zero(t, h)
}

func TestSequenceIsLiftedAcrossALongWay(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec("SELECT setval('outbox_events_seq', 500000)")
	d.insert("A", "k", 1)
	d.exec("SELECT setval('outbox_events_seq', 1)")
	s := d.open()
	_, err := s.MaxSeq(ctx)
	require.NoError(t, err)
	require.True(t, poll(t, s).Backwards)
	require.NoError(t, s.SequenceReset(ctx, 1))
	require.False(t, poll(t, s).Backwards)
	require.EqualValues(t, 500001, poll(t, s).LastSeq)
}

// Who looks at the numbers after a reset finds a row for each that was given twice, and cannot know of the second one that is not visible yet.
func TestNumbersGivenTwiceAreLookedAtAgainWhenAllIsVisible(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, other := d.open(), d.open()
	d.insert("A", "k", 10)
	poll(t, s)
	poll(t, other)
	d.exec("SELECT setval('outbox_events_seq', 3)")
	tx := begin(t, pgtest.Connect(t, d.url))
	insertBy(t, tx, "A", "k", 2) // 4 and 5 again
	require.True(t, poll(t, s).Backwards)
	require.NoError(t, s.SequenceReset(ctx, 5))
	for range 10 {
		require.False(t, poll(t, s).Backwards)
		require.False(t, poll(t, other).Backwards)
	}
	require.EqualValues(t, 10, poll(t, s).LastSeq)
	require.NoError(t, tx.Commit(ctx))
	require.Eventually(t, func() bool { return poll(t, s).Backwards }, ceiling, time.Millisecond, "other tests' transactions have to end")
	require.True(t, poll(t, other).Backwards)
	require.NoError(t, s.SequenceReset(ctx, 10))
	require.NoError(t, other.SequenceReset(ctx, 10))
	for range 10 {
		p := poll(t, other)
		require.False(t, p.Backwards, "and then it is over")
		require.EqualValues(t, 2, p.Generation)
	}
}
