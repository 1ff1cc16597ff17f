package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type noHandler struct{}

func (noHandler) Gained([]int)                 {}
func (noHandler) Release(context.Context, int) {}
func (noHandler) Lost(int)                     {}

// TestAPartitionIsNotTakenBackWhileAHandoverMayBeUnderWay covers what no pool of managers brings about: the answer to a handover was lost,
// and before the record shows what became of it the next holder is gone.
func TestAPartitionIsNotTakenBackWhileAHandoverMayBeUnderWay(t *testing.T) {
	t.Parallel()
	m, err := New(Config{ID: "me", Partitions: 1, Backend: struct{ Backend }{}, Handler: noHandler{}})
	require.NoError(t, err)
	now := time.Unix(100, 0)
	alone := view{at: now, revision: 1, members: map[string]Member{"me": {ID: "me"}}, leases: []Lease{{Holder: "me", Version: "7"}}}
	m.slots[0] = slot{state: drained, lease: "7", tried: alone.leases[0], again: now.Add(time.Second)}

	todo := m.decide(alone)
	require.Empty(t, todo.gained)
	require.True(t, todo.later)
	require.Equal(t, drained, m.slots[0].state)

	alone.at = now.Add(time.Second)
	require.Equal(t, []int{0}, m.decide(alone).gained)

	m.slots[0] = slot{state: drained, lease: "7", tried: alone.leases[0], again: now.Add(time.Minute)}
	alone.leases = []Lease{{Holder: "me", Version: "8"}}
	require.Equal(t, []int{0}, m.decide(alone).gained, "the record has changed, so that the handover cannot take effect any more")
}

func TestWithWeightsAPartitionIsNotPassedOnAtOnce(t *testing.T) {
	t.Parallel()
	m, err := New(Config{ID: "me", Partitions: 2, Backend: struct{ Backend }{}, Handler: noHandler{}, Events: func(int) uint64 { return 0 }})
	require.NoError(t, err)
	now := time.Unix(100, 0)
	v := view{at: now, revision: 1, leases: []Lease{{Holder: "me", Version: "1"}, {Partition: 1, Holder: "me", Version: "1"}},
		members: map[string]Member{"me": {ID: "me", Weights: "-"}, "other": {ID: "other", Weights: "0-1=10"}}}
	todo := m.decide(v)
	require.Equal(t, []int{0, 1}, todo.gained, "also the one that the other should have")
	require.True(t, todo.later)
	v.at = now.Add(m.cfg.pace())
	require.Equal(t, []int{1}, m.decide(v).give)

	m.leaving.Store(true)
	m.slots[0].since, m.slots[1].since = v.at, v.at
	require.Contains(t, m.decide(v).give, 0, "who leaves keeps nothing")
}
