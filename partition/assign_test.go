package partition_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/partition"
)

// pool is an arbitrary state of a pool: some holders are live members, some are dead, some partitions are free.
type pool struct {
	members []string
	holders []string
}

func drawPool(t *rapid.T) pool {
	members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,3}-[0-9]{1,2}`), 1, 12, rapid.ID[string]).Draw(t, "members")
	holder := rapid.OneOf(rapid.SampledFrom(members), rapid.SampledFrom([]string{"", "dead", "dead-too", members[0]}))
	return pool{members: members, holders: rapid.SliceOfN(holder, 0, 70).Draw(t, "holders")}
}

func count(holders []string) map[string]int {
	held := map[string]int{}
	for _, holder := range holders {
		held[holder]++
	}
	return held
}

func moves(from, to []string) int {
	n := 0
	for p := range from {
		if from[p] != to[p] {
			n++
		}
	}
	return n
}

// leastMoves is the lower bound, found in another way than Assign does it: give the ceiling to those that have most.
func leastMoves(p pool) int {
	n, w := len(p.holders), len(p.members)
	held := count(p.holders)
	var counts []int
	for _, member := range p.members {
		counts = append(counts, held[member])
	}
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	kept := 0
	for i, c := range counts {
		quota := n / w
		if i < n%w {
			quota++
		}
		kept += min(c, quota)
	}
	return n - kept
}

func TestAssignIsBalancedStickyAndDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		got := partition.Assign(p.members, p.holders)
		require.Len(t, got, len(p.holders))

		n, w := len(p.holders), len(p.members)
		held := count(got)
		total := 0
		for _, member := range p.members {
			require.GreaterOrEqual(t, held[member], n/w, "member %s", member)
			require.LessOrEqual(t, held[member], (n+w-1)/w, "member %s", member)
			total += held[member]
		}
		require.Equal(t, n, total, "every partition has a member")
		require.Equal(t, leastMoves(p), moves(p.holders, got), "moves")

		shuffled := rapid.Permutation(append(p.members, p.members[0], "")).Draw(t, "shuffled")
		require.Equal(t, got, partition.Assign(shuffled, p.holders), "order, duplicates and empty names of members")
		require.Equal(t, got, partition.Assign(p.members, got), "a balanced pool stays as it is")
	})
}

func TestAssignIsSteadyWhileMovesAreMade(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		want := partition.Assign(p.members, p.holders)
		halfway := slices.Clone(p.holders)
		for i := range halfway {
			if rapid.Bool().Draw(t, "moved") {
				halfway[i] = want[i]
			}
		}
		require.Equal(t, want, partition.Assign(p.members, halfway))
	})
}

func TestAssignMovesLittleWhenAMemberJoinsOrLeaves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		before := partition.Assign(p.members, p.holders)
		n, w := len(before), len(p.members)
		ceil := (n + w - 1) / w

		joined := partition.Assign(append(slices.Clone(p.members), "newcomer"), before)
		require.LessOrEqual(t, moves(before, joined), ceil, "a join")
		require.Equal(t, moves(before, joined), count(joined)["newcomer"], "only the newcomer gets any")

		if w > 1 {
			left := partition.Assign(p.members[1:], before)
			require.Equal(t, count(before)[p.members[0]], moves(before, left), "only what the leaver had moves")
		}
	})
}

func TestAssignAtTheEdges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ members, holders, want []string }{
		"no members":               {nil, []string{"a", ""}, []string{"", ""}},
		"only empty names":         {[]string{"", ""}, []string{"a"}, []string{""}},
		"no partitions":            {[]string{"a"}, nil, []string{}},
		"more members":             {[]string{"a", "b", "c"}, []string{""}, []string{"a"}},
		"more members, held":       {[]string{"a", "b", "c"}, []string{"c"}, []string{"c"}},
		"names that are a prefix":  {[]string{"w-1", "w-10"}, []string{"w-1", "w-10", "w-100", "w"}, []string{"w-1", "w-10", "w-1", "w-10"}},
		"the rich keep their odds": {[]string{"a", "b"}, []string{"b", "b", "a"}, []string{"b", "b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, partition.Assign(test.members, test.holders))
		})
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, size := range []struct{ partitions, members int }{{64, 5}, {1024, 100}, {4096, 1000}} {
		b.Run(fmt.Sprintf("%dx%d", size.partitions, size.members), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			members := make([]string, size.members)
			for i := range members {
				members[i] = fmt.Sprintf("worker-%d-x%d", random.IntN(1<<20), i)
			}
			holders := make([]string, size.partitions)
			for p := range holders {
				holders[p] = members[random.IntN(len(members)/2+1)]
			}
			b.ReportAllocs()
			for b.Loop() {
				partition.Assign(members, holders)
			}
		})
	}
}
