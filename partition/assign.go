package partition

import "slices"

// Assign says which member should hold each partition. holders[p] is the member that holds partition p now, or "" for none; a holder that is not
// among the members counts as none. Members may come in any order; duplicates and empty names are ignored. The result has one entry for each
// partition; an entry is "" only if there are no members.
//
// The result is
//   - deterministic: it depends on the set of members and on the holders, and on nothing else;
//   - balanced: no two members differ by more than one partition, so none has more than ceil(N/W);
//   - sticky: the number of partitions that change hands is the least that balance allows;
//   - steady: once some of the changes have been made, in whatever order, the same members get the same result. Members that act on it one
//     partition at a time, each at its own pace, therefore do not send partitions to and fro.
func Assign(members []string, holders []string) []string {
	result := make([]string, len(holders))
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if len(sorted) > 0 && sorted[0] == "" {
		sorted = sorted[1:]
	}
	if len(sorted) == 0 || len(holders) == 0 {
		return result
	}

	index := make(map[string]int, len(sorted))
	for i, member := range sorted {
		index[member] = i
	}
	held := make([]int, len(sorted))
	for _, holder := range holders {
		if i, ok := index[holder]; ok {
			held[i]++
		}
	}

	// Each member first keeps what it has, up to its quota and in the order of partitions; what is left over is then dealt out, in the order of
	// partitions and of members. Both orders are fixed, which is what makes the result steady.
	room := quotas(held, len(holders))
	for p, holder := range holders {
		if i, ok := index[holder]; ok && room[i] > 0 {
			room[i]--
			result[p] = holder
		}
	}
	next := 0
	for p := range result {
		if result[p] != "" {
			continue
		}
		for room[next] == 0 {
			next++
		}
		room[next]--
		result[p] = sorted[next]
	}
	return result
}

// quotas returns how many of n partitions each member should have, given how many it has. All get the floor of the mean; the remainder goes to
// members that already have more than that, for they would otherwise have to give one up, and then to the others, by name.
func quotas(held []int, n int) []int {
	floor, extra := n/len(held), n%len(held)
	quota := make([]int, len(held))
	for i := range quota {
		quota[i] = floor
	}
	for _, rich := range []bool{true, false} {
		for i := range quota {
			if extra > 0 && (held[i] > floor) == rich {
				quota[i]++
				extra--
			}
		}
	}
	return quota
}
