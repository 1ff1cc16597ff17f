package lease_test

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// traffic is how many events there have been in each partition, whoever delivered them.
type traffic struct {
	counts [leasetest.Partitions]atomic.Uint64
	rates  [leasetest.Partitions]atomic.Uint64 // a second
}

// flow lets events flow, at rates that differ from those wanted by up to a fifth, until the test ends.
func (f *traffic) flow(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
			for p := range f.counts {
				f.counts[p].Add(uint64(float64(f.rates[p].Load()) * (0.8 + 0.4*random.Float64())))
			}
		}
	}()
}

func (f *traffic) set(rate uint64, partitions ...int) {
	for _, p := range partitions {
		f.rates[p].Store(rate)
	}
}

func (f *traffic) weighed(c *lease.Config) {
	c.Events = func(p int) uint64 { return f.counts[p].Load() }
}

// movements are the times at which leases got another holder.
type movements struct {
	mu sync.Mutex
	at []time.Time
}

func watchMoves(pool *leasetest.Memory) *movements {
	m := &movements{}
	pool.SetTaken(func(lease.Lease, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.at = append(m.at, time.Now())
	})
	return m
}

func (m *movements) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// apart returns the shortest time between two.
func (m *movements) apart() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	shortest := time.Hour
	for i := 1; i < len(m.at); i++ {
		shortest = min(shortest, m.at[i].Sub(m.at[i-1]))
	}
	return shortest
}

// holderOf returns the worker that has the partition.
func holderOf(t *testing.T, workers []*leasetest.Worker, p int) *leasetest.Worker {
	t.Helper()
	for _, w := range workers {
		if has(w, p) {
			return w
		}
	}
	require.Fail(t, "nobody has it", "partition %d", p)
	return nil
}

func all() []int {
	var all []int
	for p := range leasetest.Partitions {
		all = append(all, p)
	}
	return all
}

// startWeighed starts workers, and waits until they may pass on what they were given first.
func startWeighed(t *testing.T, pool leasetest.Pool, n int, options ...leasetest.Option) []*leasetest.Worker {
	t.Helper()
	var workers []*leasetest.Worker
	for range n {
		workers = append(workers, leasetest.Start(t, pool, "w", lease.DefaultDuration, options...))
	}
	advance(2 * lease.DefaultDuration)
	return workers
}

func TestAHotPartitionIsLeftAloneAndNothingSloshes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, load := &leasetest.Memory{}, &traffic{}
		load.set(1000, all()...)
		load.flow(t)
		workers := startWeighed(t, pool, 4, load.weighed)
		moves := watchMoves(pool)
		advance(10 * time.Minute)
		require.Zero(t, moves.count(), "partitions that are as busy as each other are shared evenly")
		require.Empty(t, leasetest.Unsettled(t, pool, workers))

		const hot = 5
		keeper := holderOf(t, workers, hot)
		load.set(20000, hot)
		advance(3 * time.Minute)
		require.Equal(t, []int{hot}, keeper.Has(), "it stays where it was, and its neighbours go")
		require.Equal(t, 3, moves.count())
		require.GreaterOrEqual(t, moves.apart(), lease.DefaultDuration/2)
		for _, w := range workers {
			if w != keeper {
				require.Len(t, w.Has(), 5)
			}
			require.Len(t, w.Status().Members, 4)
		}

		advance(time.Hour)
		require.Equal(t, 3, moves.count(), "nothing sloshes while rates jitter")

		load.set(10, hot)
		load.set(10, all()...)
		advance(30 * time.Minute)
		require.Empty(t, leasetest.Unsettled(t, pool, workers), "evenly again once all are quiet")
		notLostBy(t, workers...)
	})
}

func notLostBy(t *testing.T, workers ...*leasetest.Worker) {
	t.Helper()
	for _, w := range workers {
		_, lost := w.Counts()
		require.Zero(t, lost)
	}
}

func TestWeightsSurviveTheirHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, load := &leasetest.Memory{}, &traffic{}
		const hot = 5
		load.set(1000, all()...)
		load.set(20000, hot)
		load.flow(t)
		workers := startWeighed(t, pool, 4, load.weighed)
		advance(10 * time.Minute)
		keeper := holderOf(t, workers, hot)
		require.Equal(t, []int{hot}, keeper.Has())

		keeper.Kill()
		advance(2 * lease.DefaultDuration)
		rest := others(workers, keeper)
		moves := watchMoves(pool)
		advance(time.Minute)
		require.Len(t, holderOf(t, rest, hot).Has(), 1, "its weight is known before it is measured anew")
		require.LessOrEqual(t, moves.count(), 5)
		settledAt := moves.count()
		advance(10 * time.Minute)
		require.LessOrEqual(t, moves.count(), settledAt+1)

		newcomer := leasetest.Start(t, pool, "new", lease.DefaultDuration, load.weighed)
		advance(time.Second)
		require.GreaterOrEqual(t, len(newcomer.Has()), 3, "it is filled up at once")
		require.NoError(t, newcomer.Stop())
		advance(time.Second)
		held := 0
		for _, w := range rest {
			held += len(w.Has())
		}
		require.Equal(t, leasetest.Partitions, held)
	})
}

func others(workers []*leasetest.Worker, but *leasetest.Worker) []*leasetest.Worker {
	var rest []*leasetest.Worker
	for _, w := range workers {
		if w != but {
			rest = append(rest, w)
		}
	}
	return rest
}

func TestWeightsCountOnceAllMembersHaveThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, load, log := &leasetest.Memory{}, &traffic{}, &lines{}
		load.set(1000, all()...)
		load.set(20000, 5)
		load.flow(t)
		plain := startWorkers(t, pool, 1, lease.DefaultDuration)
		workers := append(startWeighed(t, pool, 3, load.weighed, logTo(log, slog.LevelInfo)), plain...)
		log.take()
		advance(10 * time.Minute)
		require.Empty(t, leasetest.Unsettled(t, pool, workers))
		require.Empty(t, log.take())

		require.NoError(t, plain[0].Stop())
		advance(10 * time.Minute)
		require.Len(t, holderOf(t, workers[:3], 5).Has(), 1)
		require.Contains(t, strings.Join(log.take(), "\n"), "given away for its weight")

		old := leasetest.Start(t, pool, "old", lease.DefaultDuration)
		advance(lease.DefaultDuration)
		require.Empty(t, leasetest.Unsettled(t, pool, append(workers[:3:3], old)), "by number, while one does not say")
	})
}

func TestARestingPoolWithWeightsWritesOnlyRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var renewals, others atomic.Int64
		pool, load := &leasetest.Memory{}, &traffic{}
		load.set(500, all()...)
		load.set(50, 3, 9, 12)
		load.flow(t)
		startWeighed(t, pool, 4, load.weighed, func(c *lease.Config) {
			c.Backend = counter{c.Backend, &renewals, &others}
		})
		advance(20 * time.Minute)
		renewals.Store(0)
		others.Store(0)
		advance(10 * time.Minute)
		require.Zero(t, others.Load())
		require.InDelta(t, 4*600/(lease.DefaultDuration.Seconds()/3), renewals.Load(), 4*20, "weights travel with them")
	})
}
