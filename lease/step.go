package lease

import (
	"context"
	"errors"
	"slices"
	"time"
)

// state is what a partition is to this member.
type state int

const (
	idle      state = iota // not ours
	running                // ours, in the hands of the handler
	releasing              // ours, Release is running
	drained                // ours, released or never begun; to be handed over
	ending                 // lost while Release was running, which has not returned yet
)

// slot is a partition as this member has it. The state follows from what was seen, never from what a write is believed to have done: after
// a write, the lease is left alone until its record has changed, or long enough for the write to be tried again.
type slot struct {
	state  state
	lease  string             // version of the lease by which it is ours
	cancel context.CancelFunc // ends the running Release

	tried Lease     // what a swap was last tried on
	again time.Time // when, if that is still what is seen, another one may be tried
	given bool      // that swap took effect

	since time.Time // when it was first seen to be ours
}

// settled says whether no earlier write of ours can still be behind what is seen.
func (s *slot) settled(l Lease, at time.Time) bool {
	return s.tried != l || !at.Before(s.again)
}

// plan is what a step has found to do.
type plan struct {
	lost   []int
	gained []int
	give   []int // to be released
	swaps  []Swap
	takes  map[int]bool // which of the swaps are for us
	later  bool         // there is a swap to do that is not yet to be tried again
}

// step compares what is seen with what should be, and does what is ours to do.
func (m *Manager) step(ctx context.Context) {
	m.mu.Lock()
	v := m.view
	dead, later := m.judge.silent()
	m.mu.Unlock()
	if v.leases == nil || v.members == nil {
		return
	}
	if !m.leaving.Load() {
		m.bury(ctx, v, dead)
	}
	m.relieve(v)
	todo, looked := m.todo(v)
	m.reportLost(v, todo.lost)
	for _, p := range todo.lost {
		m.cfg.Handler.Lost(p)
	}
	if len(todo.gained) > 0 {
		m.cfg.Handler.Gained(todo.gained)
	}
	for _, p := range todo.give {
		m.release(ctx, p)
	}
	if looked {
		m.publish()
	}
	if !m.mayGive() {
		return
	}
	if len(todo.swaps) > 0 {
		m.swap(ctx, todo)
	} else if !todo.later && !later && len(dead) == 0 {
		m.settle(changing, nil) // nothing is left to do, so that nothing fails
	}
}

// todo is what decide finds. Most steps follow a renewal, which changes nothing that decide depends on: when it has found nothing to do, it need
// not look again.
func (m *Manager) todo(v view) (todo plan, looked bool) {
	key := goalKey{revision: v.revision, leaving: m.leaving.Load()}
	if m.quiet && m.quietOf == key {
		return plan{}, false
	}
	todo = m.decide(v)
	m.quiet, m.quietOf = todo.empty(), key
	return todo, true
}

func (p plan) empty() bool {
	return len(p.lost)+len(p.gained)+len(p.give)+len(p.swaps) == 0 && !p.later
}

// mayGive says whether leases may be written. A member that leaves says so before it hands over, or else those who see it with too little
// would hand it something back.
func (m *Manager) mayGive() bool {
	if !m.leaving.Load() {
		return true
	}
	select {
	case <-m.announced:
		return true
	default:
		return false
	}
}

// bury removes the records of members that have died.
func (m *Manager) bury(ctx context.Context, v view, dead []Member) {
	for _, member := range dead {
		call, cancel := context.WithTimeout(ctx, m.cfg.callTimeout())
		err := m.cfg.Backend.Bury(call, member)
		cancel()
		m.mu.Lock()
		m.judge.postpone(member.ID, v.at.Add(m.cfg.retryAfter()))
		m.mu.Unlock()
		switch {
		case err == nil:
			m.log.Warn("member is dead", "dead", member.ID, "duration", member.Duration.String())
		case !errors.Is(err, ErrRenewed):
			m.settle(changing, err)
			return
		}
	}
}

// decide moves the slots to where the view wants them.
func (m *Manager) decide(v view) plan {
	goal := m.assignment(v)
	_, joined := v.members[m.cfg.ID]
	todo := plan{takes: map[int]bool{}}
	for p := range m.slots {
		s, l := &m.slots[p], v.leases[p]
		ours := l.Version != "" && l.Holder == m.cfg.ID
		switch s.state {
		case running, releasing:
			// Ours by another version: somebody else may have held it in between and may have raised the epoch, so we begin anew.
			if !ours || l.Version != s.lease {
				todo.lost = append(todo.lost, p)
				if s.state == releasing {
					s.cancel()
					s.state = ending
				} else {
					s.state = idle
				}
			}
		case drained:
			if !ours {
				s.state = idle
			} else if l.Version != s.lease {
				s.lease, s.given = l.Version, false
			}
		}

		if s.state == idle {
			s.since = v.at
		}
		wanted := goal[p] == m.cfg.ID
		if !wanted && ours && m.keeps(s, v.at) {
			wanted, todo.later = true, true
		}
		switch s.state {
		case idle:
			switch {
			case ours && wanted:
				todo.gained = append(todo.gained, p)
				s.state, s.lease = running, l.Version
			case ours:
				s.state, s.lease, s.given = drained, l.Version, false
				s.offer(l, v.at, goal[p], &todo)
			case wanted && joined && takeable(v, l):
				todo.takes[p] = true
				s.offer(l, v.at, m.cfg.ID, &todo)
			}
		case running:
			if !wanted {
				todo.give = append(todo.give, p)
			}
		case drained:
			if !wanted {
				s.offer(l, v.at, goal[p], &todo)
			} else if s.settled(l, v.at) {
				todo.gained = append(todo.gained, p)
				s.state = running
			} else {
				todo.later = true
			}
		}
	}
	return todo
}

// offer plans a swap, unless an earlier one may still be under way.
func (s *slot) offer(l Lease, at time.Time, to string, todo *plan) {
	if s.settled(l, at) {
		todo.swaps = append(todo.swaps, Swap{Lease: l, To: to})
	} else {
		todo.later = true
	}
}

// takeable says whether nobody holds the lease.
func takeable(v view, l Lease) bool {
	if l.Version == "" || l.Holder == "" {
		return true
	}
	_, alive := v.members[l.Holder]
	return !alive
}

func holders(leases []Lease) []string {
	all := make([]string, len(leases))
	for p, l := range leases {
		all[p] = l.Holder
	}
	return all
}

// release begins to drain a partition.
func (m *Manager) release(ctx context.Context, p int) {
	drain, cancel := context.WithTimeout(ctx, m.cfg.DrainTimeout)
	m.slots[p].state, m.slots[p].cancel = releasing, cancel
	m.releases.Go(func() {
		defer cancel()
		m.cfg.Handler.Release(drain, p)
		m.drained <- p
	})
}

// released takes note that Release has returned, and of all others that have.
func (m *Manager) released(p int) {
	m.quiet = false
	for {
		s := &m.slots[p]
		switch s.state {
		case releasing:
			s.state, s.given = drained, false
		case ending:
			s.state = idle
		}
		select {
		case p = <-m.drained:
		default:
			return
		}
	}
}

// swapsPerCall is how many leases are written before those that were written are begun with.
const swapsPerCall = 64

// swap writes what was planned, or as much of it as is done in one go; the next step does the rest. Whether it took effect is seen by watching; the answer only says how soon to try again.
func (m *Manager) swap(ctx context.Context, todo plan) {
	if len(todo.swaps) > swapsPerCall {
		todo.swaps = todo.swaps[:swapsPerCall]
		defer m.kick(m.news)
	}
	call, cancel := context.WithTimeout(ctx, m.cfg.callTimeout())
	defer cancel()
	done, err := m.cfg.Backend.Swap(call, todo.swaps)
	m.settle(changing, err)

	again := m.cfg.Clock().Add(m.cfg.retryAfter())
	var taken, handed int
	for _, change := range todo.swaps {
		p := change.Lease.Partition
		s := &m.slots[p]
		s.tried, s.again, s.given = change.Lease, again, slices.Contains(done, p)
		switch {
		case s.given && todo.takes[p]:
			taken++
		case s.given:
			handed++
		}
	}
	m.mu.Lock()
	m.status.Taken += uint64(taken)
	m.status.HandedOver += uint64(handed)
	m.mu.Unlock()
	if taken+handed > 0 {
		m.log.Info("leases changed", "taken", taken, "handed_over", handed)
	}
}

// reportLost logs one line for each new holder.
func (m *Manager) reportLost(v view, lost []int) {
	if len(lost) == 0 {
		return
	}
	type finding struct{ reason, holder string }
	found := map[finding][]int{}
	for _, p := range lost {
		f := finding{reason: "somebody else is the holder", holder: v.leases[p].Holder}
		switch {
		case v.leases[p].Version == "":
			f.reason = "lease was deleted"
		case f.holder == "":
			f.reason = "lease was emptied"
		case f.holder == m.cfg.ID:
			f.reason = "lease was changed by somebody else, beginning anew"
		}
		found[f] = append(found[f], p)
	}
	for f, partitions := range found {
		m.log.Warn("partitions lost", "reason", f.reason, "holder", f.holder, "partitions", partitions)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Lost += uint64(len(lost))
}
