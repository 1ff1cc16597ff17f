package lease

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Status is the state of a member, and of the pool as it sees it.
type Status struct {
	ID string

	// Joined says that the member's record is in the pool, as last seen. Leaving says that Run was told to stop.
	Joined, Leaving bool

	// Running are the partitions that are in the hands of the handler; Releasing those that are being released or handed over.
	Running, Releasing []int

	// Members are all members by ID, and Unowned is the number of partitions that none of them holds, as last seen. Before anything was seen
	// there are no members.
	Members []MemberStatus
	Unowned int

	// RenewedAt is when the member's record was last renewed, SeenAt when the backend last gave its state or confirmed it. Zero for never.
	// Both are times of Config.Clock.
	RenewedAt, SeenAt time.Time

	// Err is why the backend cannot be used, nil if it can, and ErrSince is since when.
	Err      error
	ErrSince time.Time

	// Taken counts the partitions that were taken, HandedOver those that were handed to another (or set free), Lost those that were lost,
	// since the start.
	Taken, HandedOver, Lost uint64
}

// MemberStatus is another member, or the member itself, as it is seen.
type MemberStatus struct {
	ID       string
	Duration time.Duration
	Leaving  bool

	// Silent is for how long the member has been watched without being seen to renew.
	Silent time.Duration

	// Partitions is how many it holds.
	Partitions int
}

func (s Status) orTimeout() error {
	if s.Err != nil {
		return s.Err
	}
	return context.DeadlineExceeded
}

// Holding is how many partitions are in the hands of the handler, for those who ask often.
func (m *Manager) Holding() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.status.Running)
}

// Sees says whether a member's record was there when the pool was last seen.
func (m *Manager) Sees(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.view.members[id]
	return ok
}

// pool describes the view. m.mu is held.
func (m *Manager) pool() (members []MemberStatus, unowned int) {
	held := map[string]int{}
	for _, l := range m.view.leases {
		if takeable(m.view, l) {
			unowned++
		} else {
			held[l.Holder]++
		}
	}
	for id, member := range m.view.members {
		s := MemberStatus{ID: id, Duration: m.judge.duration(member), Leaving: member.Leaving, Partitions: held[id]}
		if o := m.judge.members[id]; o != nil {
			s.Silent = m.judge.silence(o)
		}
		members = append(members, s)
	}
	slices.SortFunc(members, func(a, b MemberStatus) int { return cmp.Compare(a.ID, b.ID) })
	return members, unowned
}

// publish makes the state of the slots visible in Status.
func (m *Manager) publish() {
	var runs, releases []int
	for p := range m.slots {
		switch m.slots[p].state {
		case running:
			runs = append(runs, p)
		case releasing, drained:
			releases = append(releases, p)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Running, m.status.Releasing = runs, releases
}

// operation is a kind of use of the backend.
type operation string

const (
	renewing operation = "renew"
	watching operation = "watch"
	changing operation = "change"
)

// faults are the operations that fail now.
type faults map[operation]fault

type fault struct {
	err   error
	since time.Time
}

// first returns the fault that has lasted longest.
func (f faults) first() (since time.Time, err error) {
	var oldest fault
	for _, one := range f {
		if oldest.err == nil || one.since.Before(oldest.since) {
			oldest = one
		}
	}
	return oldest.since, oldest.err
}

// settle notes how an operation went.
func (m *Manager) settle(op operation, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faulty(op, err)
}

// faulty is settle for those who hold m.mu. Only the change from sound to faulty and back is logged.
func (m *Manager) faulty(op operation, err error) {
	now := m.cfg.Clock()
	since, _ := m.faults.first()
	known, failing := m.faults[op]
	switch {
	case err != nil && len(m.faults) == 0:
		m.log.Warn("lease backend cannot be used", "operation", string(op), "error", err.Error())
		fallthrough
	case err != nil && !failing:
		m.faults[op] = fault{err: err, since: now}
	case err != nil:
		m.faults[op] = fault{err: err, since: known.since}
	case failing:
		delete(m.faults, op)
		if len(m.faults) == 0 {
			m.log.Info("lease backend can be used again", "after", now.Sub(since).String())
		}
	}
}
