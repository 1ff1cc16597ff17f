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
