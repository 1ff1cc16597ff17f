package lease

import (
	"slices"
	"time"

	"github.com/outlane/outlane/partition"
)

// relief is the one partition that this member is giving away for its weight, if to is not "". It is settled once, so that a weight that changes while
// the partition is drained does not call it back.
type relief struct {
	partition int
	to        string

	seen  goalKey   // for which it was last looked whether there is something to give
	since time.Time // when there was first, zero if there is nothing
}

// apply puts the relief into an assignment in which the partition stays with the member, if the receiver may hold something.
func (r *relief) apply(goal []string, self string, members []string) {
	if r.to == "" {
		return
	}
	if goal[r.partition] == self && slices.Contains(members, r.to) {
		goal[r.partition] = r.to
	} else {
		r.to = "" // it was given, or cannot be
	}
}

// relieve begins to give away a partition for its weight, if this member has had too much, and the pool has been at rest, for long enough. All
// members find the same one, and its holder gives it. Weights that change one after another, as when all partitions become busy, thus move nothing.
func (m *Manager) relieve(v view) {
	key := goalKey{revision: v.revision, leaving: m.leaving.Load()}
	r := &m.relief
	if m.meter == nil || key.leaving || r.to != "" || !m.quiet || m.quietOf != key {
		return
	}
	if r.seen == key && (r.since.IsZero() || v.at.Sub(later(r.since, v.moved)) < m.cfg.pace()) {
		return
	}
	members, all := m.assignees(v, false), holders(v.leases)
	p, to, ok := partition.Relieve(members, all, m.weights(members, v))
	r.seen = key
	switch {
	case !ok || all[p] != m.cfg.ID:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = v.at
	case v.at.Sub(later(r.since, v.moved)) >= m.cfg.pace():
		r.partition, r.to = p, to
		m.goal, m.quiet = nil, false
		m.log.Info("partition is given away for its weight", "partition", p, "to", to)
	}
}

// keeps says whether a partition is too new to be given away again. Members that remember different weights of a partition, until its holder has told
// its own, may want it in different places; it must not be sent to and fro between them.
func (m *Manager) keeps(s *slot, at time.Time) bool {
	return m.meter != nil && !m.leaving.Load() && at.Sub(s.since) < m.cfg.pace()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// weights returns the weights that count for an assignment: nil if they do not.
func (m *Manager) weights(members []string, v view) []int {
	if m.meter == nil {
		return nil
	}
	return m.meter.merge(members, v)
}

// sample returns what the member's record is to say of its partitions.
func (m *Manager) sample() string {
	if m.meter == nil {
		return ""
	}
	m.mu.Lock()
	held := slices.Clone(m.status.Running)
	m.mu.Unlock()
	return m.meter.sample(m.cfg.Clock(), held)
}

// sameWeights says whether all members say the same of their partitions.
func sameWeights(a, b map[string]Member) bool {
	for id, member := range b {
		if a[id].Weights != member.Weights {
			return false
		}
	}
	return true
}
