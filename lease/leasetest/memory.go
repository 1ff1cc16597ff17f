package leasetest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outlane/outlane/lease"
)

// Memory is a pool whose records are kept in memory. The zero value is an empty pool.
type Memory struct {
	mu      sync.Mutex
	counter int // gives versions and renewals, so that none comes twice
	members map[string]lease.Member
	leases  map[int]lease.Lease
	changed chan struct{} // closed at the next change

	// Taken is told of each lease that gets a holder, and whether that is a member. It must not call the pool.
	Taken func(l lease.Lease, member bool)
}

// SetTaken sets Taken while the pool is in use.
func (m *Memory) SetTaken(taken func(l lease.Lease, member bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Taken = taken
}

func (m *Memory) next() string {
	m.counter++
	return strconv.Itoa(m.counter)
}

// change runs f and wakes the watchers.
func (m *Memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members == nil {
		m.members, m.leases = map[string]lease.Member{}, map[int]lease.Lease{}
	}
	f()
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

func (m *Memory) put(partition int, holder string) {
	l := lease.Lease{Partition: partition, Holder: holder, Version: m.next()}
	m.leases[partition] = l
	if m.Taken != nil {
		_, member := m.members[holder]
		m.Taken(l, member)
	}
}

// Backend implements Pool.
func (m *Memory) Backend(testing.TB) lease.Backend { return memoryBackend{m} }

// Members implements Pool.
func (m *Memory) Members(testing.TB) []lease.Member {
	u, _ := m.read()
	return u.Members
}

// Leases implements Pool.
func (m *Memory) Leases(testing.TB) []lease.Lease {
	u, _ := m.read()
	return u.Leases
}

// SetHolder implements Pool.
func (m *Memory) SetHolder(_ testing.TB, partition int, holder string) {
	m.change(func() { m.put(partition, holder) })
}

// DeleteLease implements Pool.
func (m *Memory) DeleteLease(_ testing.TB, partition int) {
	m.change(func() { delete(m.leases, partition) })
}

// Disturb implements Pool.
func (m *Memory) Disturb(t testing.TB, partition int) {
	m.change(func() { m.put(partition, m.leases[partition].Holder) })
}

// SetDuration implements Pool.
func (m *Memory) SetDuration(_ testing.TB, id string, d time.Duration) {
	m.change(func() {
		if member, ok := m.members[id]; ok {
			member.Duration = d
			m.members[id] = member
		}
	})
}

func (m *Memory) read() (lease.Update, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	u := lease.Update{Members: []lease.Member{}, Leases: []lease.Lease{}}
	for _, member := range m.members {
		u.Members = append(u.Members, member)
	}
	for _, l := range m.leases {
		u.Leases = append(u.Leases, l)
	}
	slices.SortFunc(u.Members, func(a, b lease.Member) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(u.Leases, func(a, b lease.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	return u, m.changed
}

type memoryBackend struct{ pool *Memory }

func (b memoryBackend) Join(_ context.Context, member lease.Member) error {
	b.pool.change(func() {
		member.Renewal = b.pool.next()
		b.pool.members[member.ID] = member
	})
	return nil
}

func (b memoryBackend) Renew(_ context.Context, member lease.Member) (err error) {
	b.pool.change(func() {
		if _, ok := b.pool.members[member.ID]; !ok {
			err = lease.ErrGone
			return
		}
		member.Renewal = b.pool.next()
		b.pool.members[member.ID] = member
	})
	return err
}

func (b memoryBackend) Leave(_ context.Context, id string) error {
	b.pool.change(func() { delete(b.pool.members, id) })
	return nil
}

func (b memoryBackend) Bury(_ context.Context, member lease.Member) (err error) {
	b.pool.change(func() {
		if known, ok := b.pool.members[member.ID]; ok && known.Renewal != member.Renewal {
			err = lease.ErrRenewed
			return
		}
		delete(b.pool.members, member.ID)
	})
	return err
}

func (b memoryBackend) Swap(_ context.Context, swaps []lease.Swap) (done []int, _ error) {
	b.pool.change(func() {
		for _, s := range swaps {
			p := s.Lease.Partition
			if b.pool.leases[p].Version == s.Lease.Version {
				b.pool.put(p, s.To)
				done = append(done, p)
			}
		}
	})
	return done, nil
}

func (b memoryBackend) Watch(ctx context.Context, every time.Duration, see func(lease.Update)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	update, changed := b.pool.read()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		see(update)
		select {
		case <-ctx.Done():
		case <-changed:
			update, changed = b.pool.read()
		case <-tick.C:
			update = lease.Update{}
		}
	}
}
