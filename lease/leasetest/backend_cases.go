package leasetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/lease"
)

// Cases returns the tests of the contract. They may also be run in a synctest bubble, if the pool allows it.
func Cases() []Case {
	return append([]Case{
		{"a member joins, renews and leaves", testMembers},
		{"a record is buried only as it was seen", testBury},
		{"a swap takes effect only on what was seen", testSwap},
		{"of many takers one wins", testRace},
		{"a watch shows all and confirms it", testWatch},
		{"a watch never goes back", testWatchOrder},
		{"calls end with their context", testContexts},
	}, poolCases()...)
}

func testMembers(t *testing.T, pool Pool) {
	ctx, b := t.Context(), pool.Backend(t)
	id := `weird ".*' ` + "\u00e9\u4eac" + lease.NewID("")

	require.ErrorIs(t, b.Renew(ctx, lease.Member{ID: id, Duration: time.Second}), lease.ErrGone)
	require.Empty(t, pool.Members(t), "renewing creates no record")
	require.NoError(t, b.Leave(ctx, id), "nothing to leave")

	require.NoError(t, b.Join(ctx, lease.Member{ID: id, Duration: 1500 * time.Millisecond, Weights: "0-6=1,7=45"}))
	require.NoError(t, b.Join(ctx, lease.Member{ID: id + "-", Duration: time.Minute}))
	first := pool.Members(t)
	require.Len(t, first, 2)
	require.Equal(t, id, first[0].ID)
	require.Equal(t, 1500*time.Millisecond, first[0].Duration)
	require.False(t, first[0].Leaving)
	require.Equal(t, "0-6=1,7=45", first[0].Weights)
	require.Empty(t, first[1].Weights)

	require.NoError(t, b.Renew(ctx, lease.Member{ID: id, Duration: 2 * time.Second, Leaving: true, Weights: "-"}))
	second := pool.Members(t)
	require.NotEqual(t, first[0].Renewal, second[0].Renewal)
	require.Equal(t, 2*time.Second, second[0].Duration)
	require.True(t, second[0].Leaving)
	require.Equal(t, "-", second[0].Weights)
	require.Equal(t, first[1], second[1], "the other one is as before")

	require.NoError(t, b.Leave(ctx, id))
	require.NoError(t, b.Join(ctx, lease.Member{ID: id, Duration: time.Second}))
	third := pool.Members(t)
	require.Len(t, third, 2)
	require.NotContains(t, []string{first[0].Renewal, second[0].Renewal}, third[0].Renewal, "a record that comes again is another one")
	require.Empty(t, third[0].Weights)
	require.NoError(t, b.Join(ctx, lease.Member{ID: id, Duration: time.Minute, Weights: "1=2"}), "joining replaces")
	require.Len(t, pool.Members(t), 2)
	require.Equal(t, "1=2", pool.Members(t)[0].Weights)
	require.NoError(t, b.Renew(ctx, lease.Member{ID: id, Duration: time.Minute}))
	require.Empty(t, pool.Members(t)[0].Weights, "weights can be switched off")
}

func testBury(t *testing.T, pool Pool) {
	ctx, b := t.Context(), pool.Backend(t)
	require.NoError(t, b.Join(ctx, lease.Member{ID: "a", Duration: time.Second}))
	require.NoError(t, b.Join(ctx, lease.Member{ID: "ab", Duration: time.Second}))
	seen := pool.Members(t)[0]
	require.NoError(t, b.Renew(ctx, lease.Member{ID: "a", Duration: time.Second}))
	require.ErrorIs(t, b.Bury(ctx, seen), lease.ErrRenewed)
	require.Len(t, pool.Members(t), 2)

	seen = pool.Members(t)[0]
	require.NoError(t, pool.Backend(t).Bury(ctx, seen), "by another member")
	require.NoError(t, b.Bury(ctx, seen), "twice")
	require.Len(t, pool.Members(t), 1)
	require.ErrorIs(t, b.Renew(ctx, lease.Member{ID: "a", Duration: time.Second}), lease.ErrGone)
}

func testSwap(t *testing.T, pool Pool) {
	ctx, b := t.Context(), pool.Backend(t)
	missing := lease.Lease{Partition: 3}
	pool.DeleteLease(t, 3)
	done, err := b.Swap(ctx, []lease.Swap{{Lease: missing, To: "a"}})
	require.NoError(t, err)
	require.Equal(t, []int{3}, done)
	created := find(t, pool, 3)
	require.Equal(t, "a", created.Holder)

	done, err = b.Swap(ctx, []lease.Swap{{Lease: missing, To: "b"}})
	require.NoError(t, err)
	require.Empty(t, done, "there is a record now")
	require.Equal(t, created, find(t, pool, 3))

	done, err = b.Swap(ctx, []lease.Swap{{Lease: created, To: "b"}})
	require.NoError(t, err)
	require.Equal(t, []int{3}, done)
	handed := find(t, pool, 3)
	require.Equal(t, "b", handed.Holder)
	require.NotEqual(t, created.Version, handed.Version)

	pool.DeleteLease(t, 5)
	pool.SetHolder(t, 4, "x")
	four := find(t, pool, 4)
	done, err = b.Swap(ctx, []lease.Swap{{Lease: created, To: "c"}, {Lease: lease.Lease{Partition: 5}, To: ""}, {Lease: four, To: "c"}})
	require.NoError(t, err)
	slices.Sort(done)
	require.Equal(t, []int{4, 5}, done, "each on its own; the first is out of date")
	require.Equal(t, handed, find(t, pool, 3))
	require.Equal(t, "c", find(t, pool, 4).Holder)
	require.Equal(t, "", find(t, pool, 5).Holder)
	require.NotEmpty(t, find(t, pool, 5).Version)

	pool.Disturb(t, 4)
	disturbed := find(t, pool, 4)
	require.Equal(t, "c", disturbed.Holder)
	done, err = b.Swap(ctx, []lease.Swap{{Lease: disturbed, To: "d"}})
	require.NoError(t, err)
	require.Equal(t, []int{4}, done)
	require.NotEqual(t, disturbed.Version, find(t, pool, 4).Version)
	pool.DeleteLease(t, 4)
	done, err = b.Swap(ctx, []lease.Swap{{Lease: disturbed, To: "e"}})
	require.NoError(t, err)
	require.Empty(t, done, "the record is gone")

	done, err = b.Swap(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, done)
}

func find(t *testing.T, pool Pool, partition int) lease.Lease {
	t.Helper()
	for _, l := range pool.Leases(t) {
		if l.Partition == partition {
			return l
		}
	}
	require.Fail(t, "no such lease", "partition %d", partition)
	return lease.Lease{}
}

// seen returns the leases of all partitions, also of those that have no record.
func seen(t *testing.T, pool Pool) []lease.Lease {
	t.Helper()
	all := make([]lease.Lease, Partitions)
	for p := range all {
		all[p].Partition = p
	}
	for _, l := range pool.Leases(t) {
		all[l.Partition] = l
	}
	return all
}

func testRace(t *testing.T, pool Pool) {
	const takers, rounds = 4, 10
	for round := range rounds {
		before := seen(t, pool)
		var mu sync.Mutex
		winners := map[int]string{}
		var takes sync.WaitGroup
		errs := make([]error, takers)
		for i := range takers {
			b := pool.Backend(t)
			takes.Go(func() {
				me := fmt.Sprintf("taker-%d-%d", round, i)
				swaps := make([]lease.Swap, 0, Partitions)
				for _, l := range before {
					swaps = append(swaps, lease.Swap{Lease: l, To: me})
				}
				if i%2 == 1 {
					slices.Reverse(swaps) // a backend that locks must not lock in the order it was told
				}
				done, err := b.Swap(t.Context(), swaps)
				errs[i] = err
				mu.Lock()
				defer mu.Unlock()
				for _, p := range done {
					if other := winners[p]; other != "" {
						errs[i] = fmt.Errorf("partition %d was won by %s and %s", p, other, me)
					}
					winners[p] = me
				}
			})
		}
		takes.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.Len(t, winners, Partitions, "somebody wins each")
		for _, l := range pool.Leases(t) {
			require.Equal(t, winners[l.Partition], l.Holder)
		}
	}
}

// watch collects what a watch shows, until the test ends.
type watch struct {
	mu      sync.Mutex
	members []lease.Member
	leases  []lease.Lease
	calls   int
	each    func(lease.Update)
}

func startWatch(t *testing.T, b lease.Backend, each func(lease.Update)) *watch {
	w := &watch{each: each}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Watch(ctx, 10*time.Millisecond, w.see)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

func (w *watch) see(u lease.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if u.Members != nil {
		w.members = slices.SortedFunc(slices.Values(u.Members), func(a, b lease.Member) int { return cmp.Compare(a.ID, b.ID) })
	}
	if u.Leases != nil {
		w.leases = slices.SortedFunc(slices.Values(u.Leases), func(a, b lease.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	if w.each != nil {
		w.each(u)
	}
}

func (w *watch) state() (members []lease.Member, leases []lease.Lease, calls int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members, w.leases, w.calls
}

func testWatch(t *testing.T, pool Pool) {
	var first sync.Once
	firstCall := make(chan lease.Update, 1)
	w := startWatch(t, pool.Backend(t), func(u lease.Update) { first.Do(func() { firstCall <- u }) })
	u := <-firstCall
	require.NotNil(t, u.Members, "the first update is the whole state")
	require.NotNil(t, u.Leases)

	shows := func(why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			members, leases, _ := w.state()
			return slices.Equal(members, pool.Members(t)) && slices.Equal(leases, pool.Leases(t))
		}, Ceiling, 5*time.Millisecond, why)
	}
	shows("at the start")
	b := pool.Backend(t)
	require.NoError(t, b.Join(t.Context(), lease.Member{ID: "a", Duration: time.Second}))
	shows("a join")
	require.NoError(t, b.Renew(t.Context(), lease.Member{ID: "a", Duration: time.Second, Leaving: true}))
	shows("a renewal")
	require.NoError(t, b.Renew(t.Context(), lease.Member{ID: "a", Duration: time.Second, Leaving: true, Weights: "0-6=1,7=45"}))
	shows("weights")
	_, err := b.Swap(t.Context(), []lease.Swap{{Lease: seen(t, pool)[0], To: "a"}, {Lease: seen(t, pool)[1], To: "a"}})
	require.NoError(t, err)
	shows("a swap")
	pool.SetHolder(t, 1, "b")
	shows("an edited holder")
	pool.SetHolder(t, 1, "a")
	shows("an edit taken back")
	pool.Disturb(t, 0)
	shows("an odd record")
	pool.DeleteLease(t, 1)
	shows("a deleted lease")
	require.NoError(t, b.Leave(t.Context(), "a"))
	shows("a member that left")

	_, _, before := w.state()
	require.Eventually(t, func() bool {
		_, _, calls := w.state()
		return calls > before+5
	}, Ceiling, 5*time.Millisecond, "it confirms that nothing has changed")
}

func testWatchOrder(t *testing.T, pool Pool) {
	const last = 200
	reached := make(chan struct{})
	var wrong string
	highest := 0
	startWatch(t, pool.Backend(t), func(u lease.Update) {
		for _, l := range u.Leases {
			n, err := strconv.Atoi(l.Holder)
			if l.Partition != 0 || err != nil {
				continue
			}
			if n < highest {
				wrong = fmt.Sprintf("%d after %d", n, highest)
			}
			if n == last && highest < last {
				close(reached)
			}
			highest = max(highest, n)
		}
	})
	b := pool.Backend(t)
	for n := 1; n <= last; n++ {
		done, err := b.Swap(t.Context(), []lease.Swap{{Lease: seen(t, pool)[0], To: strconv.Itoa(n)}})
		require.NoError(t, err)
		require.Len(t, done, 1)
	}
	<-reached
	require.Empty(t, wrong)
}

func testContexts(t *testing.T, pool Pool) {
	b := pool.Backend(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		ended <- b.Watch(ctx, 10*time.Millisecond, func(lease.Update) {
			select {
			case begun <- struct{}{}:
			default:
			}
		})
	}()
	<-begun
	cancel()
	require.Error(t, <-ended)
}
