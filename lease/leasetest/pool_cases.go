package leasetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/lease"
)

// quick is the duration of members that are to be found dead, patient that of members that must not be, however loaded the machine is.
const (
	quick   = time.Second
	patient = 3 * time.Second
)

func poolCases() []Case {
	return []Case{
		{"one member holds all, five more get their shares", testJoins},
		{"five members start at once", testFiveAtOnce},
		{"a member that stops hands over without a gap", testStop},
		{"the last member sets free what it had", testLastStops},
		{"all members stop at once", testAllStop},
		{"a killed member's partitions are taken", testKill},
		{"a slow member is held to its own duration", testSlow},
		{"an observer that was cut off buries nobody", testCutOff},
		{"nothing is lost while the backend is down for all", testOutage},
		{"a member stops while the backend is down", testStopWhileDown},
		{"a partition is handed over after it was drained", testDrain},
		{"a drain that takes too long is cut short", testLongDrain},
		{"a partition lost in the middle of its drain", testLostWhileDraining},
		{"answers of writes are lost", testMute},
		{"leases are edited", testEdits},
		{"a lease is given to another member by hand", testGivenByHand},
		{"members' records are edited", testMemberEdits},
		{"a backup is restored", testRestored},
	}
}

// settled waits until the workers, and nobody else, share all partitions evenly, and each works on what the records say.
func settled(t testing.TB, pool Pool, workers ...*Worker) {
	t.Helper()
	why := ""
	ok := func() bool {
		why = Unsettled(t, pool, workers)
		return why == ""
	}
	if !waitFor(ok) {
		require.Fail(t, "the pool does not settle", why)
	}
}

func waitFor(ok func() bool) bool {
	timeout := time.NewTimer(Ceiling)
	defer timeout.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-timeout.C:
			return false
		case <-tick.C:
		}
	}
	return true
}

// Unsettled says what keeps the workers, and nobody else, from sharing all partitions evenly, each at work on what the records say. It is
// "" if nothing does.
func Unsettled(t testing.TB, pool Pool, workers []*Worker) string {
	shares := map[string][]int{}
	for _, l := range pool.Leases(t) {
		shares[l.Holder] = append(shares[l.Holder], l.Partition)
	}
	members := pool.Members(t)
	if len(members) != len(workers) {
		return fmt.Sprintf("%d members, %d workers", len(members), len(workers))
	}
	total := 0
	for _, w := range workers {
		share := shares[w.ID()]
		total += len(share)
		if len(share) < Partitions/len(workers) || len(share) > (Partitions+len(workers)-1)/len(workers) {
			return fmt.Sprintf("%s holds %v", w.ID(), share)
		}
		slices.Sort(share)
		if has := w.Has(); !slices.Equal(share, has) {
			return fmt.Sprintf("%s holds %v and works on %v", w.ID(), share, has)
		}
		if s := w.Status(); !slices.Equal(share, s.Running) || s.Unowned != 0 || len(s.Releasing) != 0 || !s.Joined {
			return fmt.Sprintf("status of %s: %+v", w.ID(), s)
		}
	}
	if total != Partitions {
		return fmt.Sprintf("%d of %d partitions are held by workers", total, Partitions)
	}
	return ""
}

func start(t *testing.T, pool Pool, d time.Duration, names ...string) []*Worker {
	t.Helper()
	workers := make([]*Worker, 0, len(names))
	for _, name := range names {
		workers = append(workers, Start(t, pool, name, d))
	}
	return workers
}

func notLost(t *testing.T, workers ...*Worker) {
	t.Helper()
	for _, w := range workers {
		_, lost := w.Counts()
		require.Zero(t, lost, "partitions lost by %s", w.ID())
	}
}

func testJoins(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "w")
	settled(t, pool, workers...)
	workers = append(workers, start(t, pool, patient, "w", "w", "w-1", "w-", "")...)
	settled(t, pool, workers...)
	notLost(t, workers...)
	gained := 0
	for _, w := range workers {
		g, _ := w.Counts()
		gained += g
	}
	require.LessOrEqual(t, gained, 3*Partitions, "moves")
}

func testFiveAtOnce(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "w", "w", "w", "w", "w")
	settled(t, pool, workers...)
	notLost(t, workers...)
}

// gaps watches for partitions that nobody holds after they were held once.
type gaps struct {
	mu    sync.Mutex
	found []string
}

func watchGaps(t *testing.T, pool Pool) *gaps {
	g := &gaps{}
	members := map[string]bool{}
	held := map[int]bool{}
	leases := []lease.Lease{}
	startWatch(t, pool.Backend(t), func(u lease.Update) {
		if u.Members != nil {
			members = map[string]bool{}
			for _, m := range u.Members {
				members[m.ID] = true
			}
		}
		if u.Leases != nil {
			leases = u.Leases
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, l := range leases {
			if members[l.Holder] {
				held[l.Partition] = true
			} else if held[l.Partition] {
				g.found = append(g.found, fmt.Sprintf("partition %d is held by %q", l.Partition, l.Holder))
			}
		}
	})
	return g
}

func (g *gaps) none(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(t, g.found)
}

func testStop(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "a", "b", "c")
	settled(t, pool, workers...)
	g := watchGaps(t, pool)
	require.NoError(t, workers[1].Stop())
	require.Empty(t, workers[1].Has())
	settled(t, pool, workers[0], workers[2])
	g.none(t)
	notLost(t, workers...)
	gained, _ := workers[0].Counts()
	more, _ := workers[2].Counts()
	require.LessOrEqual(t, gained+more, 3*Partitions)
}

func testLastStops(t *testing.T, pool Pool) {
	w := Start(t, pool, "a", patient)
	settled(t, pool, w)
	require.NoError(t, w.Stop())
	require.Empty(t, pool.Members(t))
	for _, l := range pool.Leases(t) {
		require.Empty(t, l.Holder)
	}
	settled(t, pool, Start(t, pool, "a", patient))
}

func testAllStop(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "a", "b", "c", "d")
	settled(t, pool, workers...)
	for _, w := range workers {
		w.StopSoon()
	}
	for _, w := range workers {
		require.NoError(t, w.Stop())
		require.Empty(t, w.Has())
	}
	require.Empty(t, pool.Members(t))
	notLost(t, workers...)
	settled(t, pool, start(t, pool, patient, "a", "b")...)
}

func testKill(t *testing.T, pool Pool) {
	workers := start(t, pool, quick, "a", "b", "c")
	settled(t, pool, workers...)
	victim := workers[0]
	had := victim.Has()
	victim.Kill()
	settled(t, pool, workers[1], workers[2])
	require.Equal(t, had, victim.Has(), "who is cut off cannot know")

	victim.Way.Set(Sound)
	require.Eventually(t, func() bool {
		_, lost := victim.Counts()
		return lost >= len(had)
	}, Ceiling, 5*time.Millisecond, "it sees that all was taken, also what it was given again since")
	settled(t, pool, workers...)
}

func testSlow(t *testing.T, pool Pool) {
	slow := Start(t, pool, "slow", 5*patient) // renews less often than the others' duration
	others := start(t, pool, quick, "a", "b", "c")
	settled(t, pool, append(others, slow)...)
	others[0].Kill() // found dead after the others' duration, and again
	settled(t, pool, others[1], others[2], slow)
	others[1].Kill()
	settled(t, pool, others[2], slow)
	notLost(t, slow)
}

func testCutOff(t *testing.T, pool Pool) {
	observer := Start(t, pool, "observer", quick)
	others := start(t, pool, patient, "a", "b")
	settled(t, pool, append(others, observer)...)
	observer.Way.Set(Silent)
	settled(t, pool, others...)
	require.Eventually(t, func() bool { return time.Since(observer.Status().SeenAt) > 2*patient }, Ceiling, 10*time.Millisecond)
	observer.Way.Set(Sound)
	settled(t, pool, append(others, observer)...)
	notLost(t, others...)
}

func testOutage(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "a", "b", "c")
	settled(t, pool, workers...)
	for i, mode := range []Mode{Down, Silent} {
		for _, w := range workers {
			w.Way.Set(mode)
		}
		for _, w := range workers {
			require.Eventually(t, func() bool {
				s := w.Status()
				return s.Err != nil && time.Since(s.ErrSince) > patient && time.Since(s.SeenAt) > patient+patient/2
			}, Ceiling, 10*time.Millisecond, "outage %d is noticed and lasts", i)
			require.NotEmpty(t, w.Has(), "what is held is kept")
		}
		for _, w := range workers {
			w.Way.Set(Sound)
		}
		for _, w := range workers {
			require.Eventually(t, func() bool { return w.Status().Err == nil }, Ceiling, 10*time.Millisecond, "the end of outage %d is noticed", i)
		}
		settled(t, pool, workers...)
		notLost(t, workers...)
	}
}

func testStopWhileDown(t *testing.T, pool Pool) {
	workers := start(t, pool, quick, "a", "b")
	settled(t, pool, workers...)
	workers[0].Way.Set(Down)
	require.ErrorIs(t, workers[0].Stop(), ErrDown)
	require.Empty(t, workers[0].Has(), "all is drained")
	settled(t, pool, workers[1])

	w := Start(t, pool, "silent", quick)
	settled(t, pool, workers[1], w)
	w.Way.Set(Silent)
	require.Error(t, w.Stop())
	settled(t, pool, workers[1])

	never := Start(t, pool, "never", quick)
	never.Way.Set(Down)
	_ = never.Stop()
	settled(t, pool, workers[1])
}

func testDrain(t *testing.T, pool Pool) {
	old := Start(t, pool, "old", patient)
	settled(t, pool, old)
	old.Hold()
	newcomer := Start(t, pool, "new", patient)
	require.Eventually(t, func() bool { return len(old.Status().Releasing) == Partitions/2 }, Ceiling, 5*time.Millisecond)
	require.Len(t, old.Has(), Partitions, "it is still at work on all")
	require.Empty(t, newcomer.Has())
	old.Unhold()
	settled(t, pool, old, newcomer)
	notLost(t, old, newcomer)
}

func testLongDrain(t *testing.T, pool Pool) {
	old := Start(t, pool, "old", patient, func(c *lease.Config) { c.DrainTimeout = 100 * time.Millisecond })
	settled(t, pool, old)
	old.Hold()
	newcomer := Start(t, pool, "new", patient)
	settled(t, pool, old, newcomer)
	require.NoError(t, old.Stop())
	settled(t, pool, newcomer)
}

func testLostWhileDraining(t *testing.T, pool Pool) {
	old := Start(t, pool, "old", patient)
	settled(t, pool, old)
	old.Hold()
	newcomer := Start(t, pool, "new", patient)
	require.Eventually(t, func() bool { return len(old.Status().Releasing) == Partitions/2 }, Ceiling, 5*time.Millisecond)
	for _, p := range old.Status().Releasing {
		pool.SetHolder(t, p, newcomer.ID())
	}
	settled(t, pool, old, newcomer)
	_, lost := old.Counts()
	require.Equal(t, Partitions/2, lost)
	old.Unhold()
	require.NoError(t, newcomer.Stop())
	settled(t, pool, old)
}

func testMute(t *testing.T, pool Pool) {
	a := Start(t, pool, "a", patient)
	a.Way.Set(Mute)
	settled(t, pool, a)
	b := Start(t, pool, "b", patient)
	settled(t, pool, a, b)
	require.Eventually(t, func() bool { return a.Status().Err != nil }, Ceiling, 10*time.Millisecond)
	a.Way.Set(Sound)
	require.Eventually(t, func() bool { return a.Status().Err == nil }, Ceiling, 10*time.Millisecond)
	settled(t, pool, a, b)
	notLost(t, a, b)
}

func testEdits(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "a", "b", "c")
	settled(t, pool, workers...)
	for _, edit := range []struct {
		name string
		do   func(p int)
	}{
		{"a holder that does not exist", func(p int) { pool.SetHolder(t, p, "nobody") }},
		{"a prefix of a holder", func(p int) { pool.SetHolder(t, p, workers[0].ID()[:len(workers[0].ID())-1]) }},
		{"no holder", func(p int) { pool.SetHolder(t, p, "") }},
		{"a deleted lease", func(p int) { pool.DeleteLease(t, p) }},
		{"an odd record", func(p int) { pool.Disturb(t, p) }},
	} {
		before := find(t, pool, 7).Version
		edit.do(7)
		require.Eventually(t, func() bool {
			for _, l := range pool.Leases(t) {
				if l.Partition == 7 {
					return l.Version != before
				}
			}
			return false
		}, Ceiling, 5*time.Millisecond, edit.name)
		settled(t, pool, workers...)
	}
	for p := range Partitions {
		pool.DeleteLease(t, p)
	}
	settled(t, pool, workers...)
	for p := range Partitions {
		pool.SetHolder(t, p, workers[2].ID())
	}
	settled(t, pool, workers...)
}

func testGivenByHand(t *testing.T, pool Pool) {
	workers := start(t, pool, patient, "a", "b")
	settled(t, pool, workers...)
	from, to := workers[0], workers[1]
	p := from.Has()[0]
	pool.SetHolder(t, p, to.ID())
	require.Eventually(t, func() bool { _, lost := from.Counts(); return lost == 1 }, Ceiling, 5*time.Millisecond)
	settled(t, pool, workers...)
	notLost(t, to)
}

func testMemberEdits(t *testing.T, pool Pool) {
	workers := start(t, pool, quick, "a", "b")
	settled(t, pool, workers...)
	for _, d := range []time.Duration{0, -time.Hour, time.Nanosecond, 100 * 365 * 24 * time.Hour} {
		pool.SetDuration(t, workers[0].ID(), d)
		settled(t, pool, workers...)
	}
	require.NoError(t, pool.Backend(t).Leave(t.Context(), workers[0].ID()))
	require.Eventually(t, func() bool { return len(pool.Members(t)) == 2 }, Ceiling, 5*time.Millisecond, "it joins again")
	settled(t, pool, workers...)
	require.NoError(t, pool.Backend(t).Join(t.Context(), lease.Member{ID: "stranger", Duration: quick}))
	require.Eventually(t, func() bool { return len(pool.Members(t)) == 2 }, Ceiling, 5*time.Millisecond, "who never renews is buried")
	settled(t, pool, workers...)
}

func testRestored(t *testing.T, pool Pool) {
	workers := start(t, pool, quick, "a", "b", "c")
	settled(t, pool, workers...)
	old := []string{"old-a", "old-b", "old-c"}
	for _, id := range old {
		require.NoError(t, pool.Backend(t).Join(t.Context(), lease.Member{ID: id, Duration: quick}))
	}
	for _, w := range workers {
		require.NoError(t, pool.Backend(t).Leave(t.Context(), w.ID()))
	}
	for p := range Partitions {
		pool.SetHolder(t, p, old[p%3])
	}
	settled(t, pool, workers...)
}
