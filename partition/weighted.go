package partition

import (
	"cmp"
	"slices"
)

// AssignWeighted is Assign for partitions that differ in the work they are. weights[p] is the work of partition p in any unit; what is missing or
// below 1 counts as 1. If all weights are equal, the result is Assign's. Otherwise it is
//   - deterministic, as Assign's is;
//   - sticky: a partition stays with its holder, whatever that one's load, unless the last rule takes it away;
//   - greedy: partitions without a holder go, heaviest first, each to the member that has the least load then;
//   - open to newcomers: once no partition is without a holder, a member that has fewer partitions than floor(N/W) and less than seven eighths
//     of the mean load is filled up from those that have most;
//   - steady: with weights that stay as they are, each move by the last rule makes the loads more even, alone and together with any others of
//     the same result, so that partitions are not sent to and fro, and an end is reached.
//
// Differences of load that have come about otherwise are left to Relieve.
func AssignWeighted(members, holders []string, weights []int) []string {
	if evenly(weights, len(holders)) {
		return Assign(members, holders)
	}
	s := newScales(members, holders, weights)
	if len(s.names) > 0 && !s.deal() {
		s.fill()
	}
	return s.result
}

// Relieve returns a partition that its holder should hand to another member for the sake of the load alone, if there is one. Its holder has more
// than 5/4 of the mean load, and the partition weighs no more than 3/4 of what the holder has more than the receiver, who has the least. Members
// that hold a single partition cannot be relieved; those of them that are above the mean are left out of it. While AssignWeighted has anything
// to move, there is none.
//
// Each such move makes the loads more even, so that an end is reached if moves are made one after another and the weights stay as they are: every
// member that has two partitions or more is then within 5/4 of the mean, or above the least loaded by no more than 4/3 of the weight of its lightest.
// For a partition to be sent straight back, weights would have to change by about a half.
func Relieve(members, holders []string, weights []int) (p int, to string, ok bool) {
	if evenly(weights, len(holders)) || !slices.Equal(AssignWeighted(members, holders, weights), holders) {
		return 0, "", false
	}
	s := newScales(members, holders, weights)
	if len(s.names) < 2 {
		return 0, "", false
	}
	total, n := s.mean()
	least := s.least(func(int) bool { return true })
	for _, from := range s.heaviestFirst() {
		if 4*s.load[from]*n <= 5*total {
			break
		}
		if p, ok := s.best(from, least); ok {
			return p, s.names[least], true
		}
	}
	return 0, "", false
}

// evenly says whether all of n partitions weigh the same.
func evenly(weights []int, n int) bool {
	for p := 1; p < n; p++ {
		if weightOf(weights, p) != weightOf(weights, 0) {
			return false
		}
	}
	return true
}

func weightOf(weights []int, p int) int {
	if p < len(weights) {
		return max(weights[p], 1)
	}
	return 1
}

// scales are members, by name, with what each has.
type scales struct {
	names   []string
	weights []int
	result  []string
	held    [][]int // partitions by member, ascending
	load    []int   // by member
}

func newScales(members, holders []string, weights []int) *scales {
	s := &scales{names: slices.Sorted(slices.Values(members)), result: make([]string, len(holders)), weights: make([]int, len(holders))}
	s.names = slices.Compact(s.names)
	if len(s.names) > 0 && s.names[0] == "" {
		s.names = s.names[1:]
	}
	s.held, s.load = make([][]int, len(s.names)), make([]int, len(s.names))
	index := make(map[string]int, len(s.names))
	for i, name := range s.names {
		index[name] = i
	}
	for p, holder := range holders {
		s.weights[p] = weightOf(weights, p)
		if i, ok := index[holder]; ok {
			s.put(p, i)
		}
	}
	return s
}

func (s *scales) put(p, to int) {
	s.result[p] = s.names[to]
	s.held[to] = append(s.held[to], p)
	s.load[to] += s.weights[p]
}

func (s *scales) move(p, from, to int) {
	s.held[from] = slices.DeleteFunc(s.held[from], func(q int) bool { return q == p })
	s.load[from] -= s.weights[p]
	s.put(p, to)
}

// deal gives away what has no holder, and says whether there was any.
func (s *scales) deal() bool {
	var free []int
	for p, holder := range s.result {
		if holder == "" {
			free = append(free, p)
		}
	}
	slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(s.weights[b], s.weights[a]) })
	for _, p := range free {
		s.put(p, s.least(func(int) bool { return true }))
	}
	return len(free) > 0
}

// fill moves partitions to those that have too few and too little. Who gives gets nothing and who gets gives nothing: so each move is an
// improvement even if others have not been made.
func (s *scales) fill() {
	total, n := s.mean()
	floor := len(s.result) / len(s.names)
	gave, got := make([]bool, len(s.names)), make([]bool, len(s.names))
	for {
		to := s.least(func(i int) bool { return !gave[i] && len(s.held[i]) < floor && 8*s.load[i]*n < 7*total })
		if to < 0 {
			return
		}
		moved := false
		for _, from := range s.heaviestFirst() {
			if got[from] {
				continue
			}
			if p, ok := s.best(from, to); ok {
				s.move(p, from, to)
				gave[from], got[to], moved = true, true, true
				break
			}
		}
		if !moved {
			return
		}
	}
}

// least returns the member that has the least load among those that may be chosen, -1 if there are none.
func (s *scales) least(may func(int) bool) int {
	found := -1
	for i := range s.names {
		if may(i) && (found < 0 || cmp.Or(cmp.Compare(s.load[i], s.load[found]), cmp.Compare(len(s.held[i]), len(s.held[found]))) < 0) {
			found = i
		}
	}
	return found
}

func (s *scales) heaviestFirst() []int {
	order := make([]int, len(s.names))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.load[b], s.load[a]) })
	return order
}

// best returns the partition that is best moved from one member to another: the heaviest that is no more than half of the difference of their loads, or
// else the lightest that is no more than three quarters of it. More would hardly help, and a small change of weights would send it back.
func (s *scales) best(from, to int) (p int, ok bool) {
	apart := s.load[from] - s.load[to]
	better := func(w, than int) bool {
		fits := 2*w <= apart
		if fits != (2*than <= apart) {
			return fits
		}
		return w != than && fits == (w > than)
	}
	for _, q := range s.held[from] {
		if w := s.weights[q]; 4*w <= 3*apart && (!ok || better(w, s.weights[p])) {
			p, ok = q, true
		}
	}
	return p, ok
}

// mean returns the load that is to be shared, and among how many: members that one heavy partition keeps above the mean are left out of both.
func (s *scales) mean() (total, n int) {
	n = len(s.names)
	for _, load := range s.load {
		total += load
	}
	for _, i := range s.heaviestFirst() {
		if n == 1 || s.load[i]*n <= total {
			break
		}
		if len(s.held[i]) == 1 {
			total -= s.load[i]
			n--
		}
	}
	return total, n
}
