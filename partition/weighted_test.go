package partition_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/partition"
)

func drawWeights(t *rapid.T, n int) []int {
	return rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 4), rapid.Just(1), rapid.IntRange(1, 300)), n, n).Draw(t, "weights")
}

func loads(holders []string, weights []int) map[string]int {
	load := map[string]int{}
	for p, holder := range holders {
		load[holder] += weights[p]
	}
	return load
}

// uneven is less, the more evenly the members are loaded.
func uneven(members, holders []string, weights []int) int {
	load, sum := loads(holders, weights), 0
	for _, member := range members {
		sum += load[member] * load[member]
	}
	return sum
}

func TestAssignWeightedIsAssignWhileAllWeighTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		want := partition.Assign(p.members, p.holders)
		same := slices.Repeat([]int{rapid.IntRange(-1, 9).Draw(t, "weight")}, len(p.holders))
		require.Equal(t, want, partition.AssignWeighted(p.members, p.holders, same))
		require.Equal(t, want, partition.AssignWeighted(p.members, p.holders, nil))
		_, _, ok := partition.Relieve(p.members, p.holders, same)
		require.False(t, ok)
	})
}

func TestAssignWeightedIsDeterministicAndSticky(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		weights := drawWeights(t, len(p.holders))
		got := partition.AssignWeighted(p.members, p.holders, weights)
		require.Len(t, got, len(p.holders))
		for _, holder := range got {
			require.Contains(t, p.members, holder)
		}
		shuffled := rapid.Permutation(append(slices.Clone(p.members), p.members[0], "")).Draw(t, "shuffled")
		require.Equal(t, got, partition.AssignWeighted(shuffled, p.holders, weights), "order, duplicates and empty names of members")

		if len(slices.Compact(slices.Sorted(slices.Values(weights)))) < 2 {
			return // Assign's
		}
		free := slices.ContainsFunc(p.holders, func(h string) bool { return !slices.Contains(p.members, h) })
		before := count(p.holders)
		for i, holder := range p.holders {
			if got[i] != holder && slices.Contains(p.members, holder) {
				require.False(t, free, "first what nobody has")
				require.Less(t, before[got[i]], len(p.holders)/len(p.members), "only to those that have too few")
			}
		}
	})
}

// TestWeightedMovesEachHelp holds that moves can be made in any order, in part, and from results that are computed anew in between, and that
// none of them undoes another.
func TestWeightedMovesEachHelp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		weights := append(drawWeights(t, len(p.holders)), 1, 2)
		holders := append(p.holders, p.members[0], p.members[0]) // not all weights are the same
		for i, holder := range holders {
			if !slices.Contains(p.members, holder) {
				holders[i] = p.members[i%len(p.members)]
			}
		}
		for round := 0; ; round++ {
			require.Less(t, round, 3*len(holders)+10, "it comes to an end")
			goal := partition.AssignWeighted(p.members, holders, weights)
			if q, to, ok := partition.Relieve(p.members, holders, weights); ok {
				require.Equal(t, holders, goal)
				require.NotEqual(t, holders[q], to)
				goal[q] = to
			}
			if slices.Equal(goal, holders) {
				break
			}
			var moved int
			for _, q := range rapid.Permutation(indices(len(holders))).Draw(t, "order") {
				if holders[q] == goal[q] || moved > 0 && rapid.Bool().Draw(t, "not yet") {
					continue
				}
				before := uneven(p.members, holders, weights)
				holders[q] = goal[q]
				moved++
				require.Less(t, uneven(p.members, holders, weights), before, "a move helps, whatever was moved before")
			}
		}
		requireRested(t, p.members, holders, weights)
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// requireRested checks the promise of Relieve.
func requireRested(t *rapid.T, members, holders []string, weights []int) {
	load, held := loads(holders, weights), count(holders)
	byLoad := slices.SortedFunc(slices.Values(members), func(a, b string) int { return load[b] - load[a] })
	total, n := 0, len(members)
	for _, w := range weights {
		total += w
	}
	for _, m := range byLoad {
		if n > 1 && load[m]*n > total && held[m] == 1 {
			total, n = total-load[m], n-1
		}
	}
	least := load[byLoad[len(byLoad)-1]]
	for _, m := range members {
		lightest := 1 << 30
		for p, holder := range holders {
			if holder == m {
				lightest = min(lightest, weights[p])
			}
		}
		require.True(t, held[m] < 2 || 4*load[m]*n <= 5*total || 3*(load[m]-least) < 4*lightest, "%s has %d of %d among %d, the least is %d", m, load[m], total, n, least)
	}
}

func TestAHotPartitionEndsWithFewOthers(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b", "c", "d"}
	weights := slices.Repeat([]int{1}, 64)
	holders := partition.Assign(members, make([]string, 64))
	weights[5] = 100
	hot := holders[5]
	moved := 0
	for p, to, ok := partition.Relieve(members, holders, weights); ok; p, to, ok = partition.Relieve(members, holders, weights) {
		require.NotEqual(t, 5, p, "the hot one stays")
		holders[p] = to
		moved++
	}
	require.Equal(t, 15, moved)
	require.Equal(t, map[string]int{"a": 21, "b": 21, "c": 21, "d": 21, hot: 1}, count(holders))

	newcomer := partition.AssignWeighted(append(members, "e"), holders, weights)
	require.InDelta(t, 63/4, count(newcomer)["e"], 4)
	require.Equal(t, count(newcomer)["e"], moves(holders, newcomer), "only to the newcomer")
	require.Equal(t, hot, newcomer[5])

	gone := partition.AssignWeighted(slices.DeleteFunc(slices.Clone(members), func(m string) bool { return m == hot }), holders, weights)
	require.Equal(t, 1, moves(holders, gone))
	require.NotEqual(t, hot, gone[5])
}
