package lease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

// Most tests here run in a bubble, whose clock is fake and moves only when every goroutine waits. So times can be asserted exactly.

// advance lets time go by.
func advance(d time.Duration) { <-time.After(d) }

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns the lines since the last call.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.buf.String())
	l.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func logTo(l *lines, level slog.Level) leasetest.Option {
	return func(c *lease.Config) {
		c.Logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
	}
}

// counter counts the writes of a member.
type counter struct {
	lease.Backend
	renewals, others *atomic.Int64
}

func (c counter) Renew(ctx context.Context, m lease.Member) error {
	c.renewals.Add(1)
	return c.Backend.Renew(ctx, m)
}

func (c counter) Swap(ctx context.Context, swaps []lease.Swap) ([]int, error) {
	c.others.Add(1)
	return c.Backend.Swap(ctx, swaps)
}

func (c counter) Bury(ctx context.Context, m lease.Member) error {
	c.others.Add(1)
	return c.Backend.Bury(ctx, m)
}

func startWorkers(t *testing.T, pool leasetest.Pool, n int, d time.Duration, options ...leasetest.Option) []*leasetest.Worker {
	var workers []*leasetest.Worker
	for range n {
		workers = append(workers, leasetest.Start(t, pool, "w", d, options...))
	}
	advance(time.Second)
	require.Empty(t, leasetest.Unsettled(t, pool, workers))
	return workers
}

func TestADeadMembersPartitionsAreTakenInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &leasetest.Memory{}
		workers := startWorkers(t, pool, 5, lease.DefaultDuration)
		workers[0].Kill()
		advance(lease.DefaultDuration * 2 / 3) // it renewed up to a third before it died
		require.Len(t, pool.Members(t), 5, "it is not yet dead")
		advance(lease.DefaultDuration/3 + time.Second)
		require.Empty(t, leasetest.Unsettled(t, pool, workers[1:]))
	})
}

func TestAGracefulStopIsQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &leasetest.Memory{}
		workers := startWorkers(t, pool, 3, lease.DefaultDuration)
		workers[0].StopSoon()
		advance(50 * time.Millisecond)
		require.Empty(t, workers[0].Has())
		held := len(workers[1].Has()) + len(workers[2].Has())
		require.Equal(t, leasetest.Partitions, held, "the others are at work")
		advance(450 * time.Millisecond)
		require.Len(t, pool.Members(t), 2)
		require.NoError(t, workers[0].Stop())
	})
}

// late is a backend that answers renewals, and shows what it holds, late.
type late struct {
	lease.Backend
	renewals, views time.Duration
}

func (l late) Renew(ctx context.Context, m lease.Member) error {
	advance(l.renewals)
	return l.Backend.Renew(ctx, m)
}

func (l late) Watch(ctx context.Context, every time.Duration, see func(lease.Update)) error {
	return l.Backend.Watch(ctx, every, func(u lease.Update) {
		advance(l.views)
		see(u)
	})
}

// holders records the holders of the leases, and whether any was without a member.
func holders(pool *leasetest.Memory) (history func() []string) {
	var mu sync.Mutex
	var all []string
	pool.Taken = func(l lease.Lease, alive bool) {
		mu.Lock()
		defer mu.Unlock()
		if !alive {
			all = append(all, "nobody")
		}
		all = append(all, l.Holder)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestALeaverIsGivenNothingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &leasetest.Memory{}
		workers := startWorkers(t, pool, 3, lease.DefaultDuration, func(c *lease.Config) {
			c.Backend = late{Backend: c.Backend, renewals: 100 * time.Millisecond}
		})
		history := holders(pool)
		require.NoError(t, workers[0].Stop())
		require.NotEmpty(t, history())
		require.NotContains(t, history(), workers[0].ID())
		require.NotContains(t, history(), "nobody")
	})
}

func TestALeaverPassesOnWhatItIsGivenLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &leasetest.Memory{}
		giver := startWorkers(t, pool, 1, lease.DefaultDuration, func(c *lease.Config) {
			c.Backend = late{Backend: c.Backend, views: 100 * time.Millisecond}
		})[0]
		giver.Hold()
		leaver := leasetest.Start(t, pool, "leaver", lease.DefaultDuration)
		advance(time.Second)
		require.Len(t, giver.Status().Releasing, leasetest.Partitions/2)
		history := holders(pool)
		leaver.StopSoon()
		giver.Unhold() // it does not know yet, and gives the leaver its share
		require.NoError(t, leaver.Stop())
		require.Contains(t, history(), leaver.ID())
		require.NotContains(t, history(), "nobody")
		advance(time.Second)
		require.EqualValues(t, leasetest.Partitions, giver.Status().Taken, "all came back by handing over")
		require.Empty(t, leasetest.Unsettled(t, pool, []*leasetest.Worker{giver}))
		gained, _ := leaver.Counts()
		require.Zero(t, gained, "it never began with them")
	})
}

func TestARestingPoolWritesOnlyRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var renewals, others atomic.Int64
		pool := &leasetest.Memory{}
		startWorkers(t, pool, 6, lease.DefaultDuration, func(c *lease.Config) {
			c.Backend = counter{c.Backend, &renewals, &others}
		})
		renewals.Store(0)
		others.Store(0)
		advance(10 * time.Minute)
		require.Zero(t, others.Load())
		require.InDelta(t, 6*600/(lease.DefaultDuration.Seconds()/3), renewals.Load(), 6*20, "each every third of its duration")
	})
}

func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, log := &leasetest.Memory{}, &lines{}
		workers := startWorkers(t, pool, 2, lease.DefaultDuration, logTo(log, slog.LevelInfo))
		log.take()
		began := time.Now()
		workers[0].Way.Set(leasetest.Down)
		advance(5 * time.Second)
		status := workers[0].Status()
		require.ErrorIs(t, status.Err, leasetest.ErrDown)
		require.WithinDuration(t, began, status.ErrSince, time.Second)
		require.WithinDuration(t, began, status.SeenAt, time.Second)
		require.WithinDuration(t, began, status.RenewedAt, lease.DefaultDuration/3)
		require.Len(t, status.Running, leasetest.Partitions/2, "what is held is kept")
		workers[0].Way.Set(leasetest.Sound)
		advance(lease.DefaultDuration / 2)
		require.NoError(t, workers[0].Status().Err)
		require.True(t, workers[0].Status().ErrSince.IsZero())
		got := log.take()
		require.Len(t, got, 2, "%q", got)
		require.Contains(t, got[0], "cannot be used")
		require.Contains(t, got[1], "can be used again")
		require.Empty(t, leasetest.Unsettled(t, pool, workers))
	})
}

func TestEachEditIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(t *testing.T, pool *leasetest.Memory, p int, owner string)
		want string
	}{
		"another holder": {func(t *testing.T, pool *leasetest.Memory, p int, _ string) { pool.SetHolder(t, p, "nobody") }, "somebody else is the holder"},
		"emptied":        {func(t *testing.T, pool *leasetest.Memory, p int, _ string) { pool.SetHolder(t, p, "") }, "lease was emptied"},
		"deleted":        {func(t *testing.T, pool *leasetest.Memory, p int, _ string) { pool.DeleteLease(t, p) }, "lease was deleted"},
		"disturbed":      {func(t *testing.T, pool *leasetest.Memory, p int, _ string) { pool.Disturb(t, p) }, "beginning anew"},
		"member deleted": {func(t *testing.T, pool *leasetest.Memory, _ int, owner string) {
			require.NoError(t, pool.Backend(t).Leave(t.Context(), owner))
		}, "own record in the pool was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, log := &leasetest.Memory{}, &lines{}
				workers := startWorkers(t, pool, 1, lease.DefaultDuration, logTo(log, slog.LevelWarn))
				test.edit(t, pool, 5, workers[0].ID())
				advance(time.Second)
				require.Empty(t, leasetest.Unsettled(t, pool, workers))
				got := log.take()
				require.Len(t, got, 1, "%q", got)
				require.Contains(t, got[0], test.want)
			})
		})
	}
}

// stubborn is a handler that blocks in Gained.
type stubborn struct {
	lease.Handler
	block *atomic.Pointer[chan struct{}]
}

func (s stubborn) Gained(partitions []int) {
	if wait := s.block.Load(); wait != nil {
		<-*wait
	}
	s.Handler.Gained(partitions)
}

func TestAMemberWhoseHandlerBlocksIsNotHeldAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var block atomic.Pointer[chan struct{}]
		pool, log := &leasetest.Memory{}, &lines{}
		workers := startWorkers(t, pool, 2, lease.DefaultDuration)
		stuck := leasetest.Start(t, pool, "stuck", lease.DefaultDuration, logTo(log, slog.LevelError), func(c *lease.Config) {
			c.Handler = stubborn{c.Handler, &block}
		})
		advance(time.Second)
		all := append([]*leasetest.Worker{stuck}, workers...)
		require.Empty(t, leasetest.Unsettled(t, pool, all))

		release := make(chan struct{})
		block.Store(&release)
		require.NoError(t, workers[1].Stop()) // gives it more
		advance(3 * lease.DefaultDuration)
		require.Empty(t, leasetest.Unsettled(t, pool, workers[:1]), "the other has all")
		require.Len(t, log.take(), 1)

		block.Store(nil)
		close(release)
		advance(2 * time.Second)
		require.Empty(t, leasetest.Unsettled(t, pool, []*leasetest.Worker{stuck, workers[0]}))
	})
}

func TestAFailedSwapIsNoChurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, log := &leasetest.Memory{}, &lines{}
		refused := errors.New("forbidden")
		var allow atomic.Bool
		var tries atomic.Int64
		w := leasetest.Start(t, pool, "w", lease.DefaultDuration, logTo(log, slog.LevelInfo), func(c *lease.Config) {
			c.Backend = picky{c.Backend, refused, &allow, &tries}
		})
		advance(time.Minute)
		require.ErrorIs(t, w.Status().Err, refused)
		require.Equal(t, leasetest.Partitions, w.Status().Unowned)
		require.InDelta(t, 60, tries.Load(), 15, "about once a second")
		require.Len(t, log.take(), 1)
		allow.Store(true)
		advance(2 * time.Second)
		require.Empty(t, leasetest.Unsettled(t, pool, []*leasetest.Worker{w}))
		require.NoError(t, w.Status().Err)
	})
}

// picky refuses to swap.
type picky struct {
	lease.Backend
	refusal error
	allow   *atomic.Bool
	tries   *atomic.Int64
}

func (p picky) Swap(ctx context.Context, swaps []lease.Swap) ([]int, error) {
	p.tries.Add(1)
	if p.allow.Load() {
		return p.Backend.Swap(ctx, swaps)
	}
	return nil, p.refusal
}

func TestStatusTellsOfThePool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &leasetest.Memory{}
		down := leasetest.Start(t, pool, "down", lease.DefaultDuration, func(c *lease.Config) { c.Backend.(*leasetest.Faults).Set(leasetest.Down) })
		advance(time.Second)
		before := down.Status()
		require.Error(t, before.Err)
		require.Equal(t, lease.Status{ID: down.ID(), Err: before.Err, ErrSince: before.ErrSince}, before, "nothing was seen")

		workers := startWorkers(t, pool, 2, lease.DefaultDuration)
		slow := leasetest.Start(t, pool, "zz-slow", time.Minute)
		advance(4 * time.Second)
		workers[0].Hold()
		workers[0].StopSoon()
		advance(time.Second)
		s := workers[1].Status()
		require.Len(t, s.Members, 3)
		for _, m := range s.Members {
			switch m.ID {
			case workers[0].ID():
				require.True(t, m.Leaving)
				require.Positive(t, m.Partitions)
			case workers[1].ID():
				require.Equal(t, len(s.Running), m.Partitions)
			case slow.ID():
				require.Equal(t, time.Minute, m.Duration)
				require.InDelta(t, 2.5, m.Silent.Seconds(), 2.6, "it renews once within the first third, then every third")
			}
		}
		leaver := workers[0].Status()
		require.True(t, leaver.Leaving)
		require.NotEmpty(t, leaver.Releasing)
		require.Empty(t, leaver.Running)
		require.NotZero(t, leaver.HandedOver+leaver.Taken)
		workers[0].Unhold()
	})
}

func TestIdentities(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := lease.NewID("host")
		require.Regexp(t, `^host-[a-z2-7]{10}$`, id)
		require.False(t, seen[id])
		seen[id] = true
	}
	require.Regexp(t, `^[a-z2-7]{10}$`, lease.NewID(""))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := lease.Config{ID: "a", Partitions: 1, Backend: leasetest.NewFaults(nil), Handler: &leasetest.Worker{}}
	_, err := lease.New(good)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*lease.Config){
		"no identity":        func(c *lease.Config) { c.ID = "" },
		"no partitions":      func(c *lease.Config) { c.Partitions = 0 },
		"too many":           func(c *lease.Config) { c.Partitions = 4097 },
		"no backend":         func(c *lease.Config) { c.Backend = nil },
		"no handler":         func(c *lease.Config) { c.Handler = nil },
		"short duration":     func(c *lease.Config) { c.Duration = time.Millisecond },
		"long duration":      func(c *lease.Config) { c.Duration = 2 * time.Hour },
		"negative drain":     func(c *lease.Config) { c.DrainTimeout = -1 },
		"negative duration":  func(c *lease.Config) { c.Duration = -time.Second },
		"negative partition": func(c *lease.Config) { c.Partitions = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			spoil(&bad)
			_, err := lease.New(bad)
			require.ErrorContains(t, err, "lease: ")
		})
	}
}

func TestRunIsCalledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := leasetest.Start(t, &leasetest.Memory{}, "w", lease.DefaultDuration)
		advance(time.Second)
		require.ErrorContains(t, w.Run(t.Context()), "called before")
	})
}
