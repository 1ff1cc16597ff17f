package lease

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// eventsPerWeight is how many events a second make a weight of 1. Partitions of less than the least weight are all the same: they are no work.
	eventsPerWeight = 10
	leastWeight     = 10
	maxWeight       = 1 << 16

	// stepsPerDouble is how finely weights are told apart.
	stepsPerDouble = 4

	// A rate that rises is believed in about three durations, one that falls in ten times that. So a partition that is busy now and then is not
	// moved for each of its pauses.
	risesIn = 3
	fallsIn = 30
)

// meter measures how much work the partitions are that a member has, and knows what members have said of theirs.
type meter struct {
	count    func(partition int) uint64
	duration time.Duration

	mu       sync.Mutex
	known    []int // by partition: what its holder said last; the least if nothing is known
	measured []measured
	at       time.Time // of the last sample
}

type measured struct {
	held   bool
	count  uint64
	rate   float64 // events a second
	weight int
}

func newMeter(partitions int, duration time.Duration, count func(int) uint64) *meter {
	m := &meter{count: count, duration: duration, known: make([]int, partitions), measured: make([]measured, partitions)}
	for p := range m.known {
		m.known[p] = leastWeight
	}
	return m
}

// sample measures the partitions that are held, and returns the member's weights as they are written into its record. A partition that was just taken
// is as heavy as its last holder said.
func (m *meter) sample(now time.Time, held []int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := now.Sub(m.at)
	next := make([]measured, len(m.measured))
	weights := make([]int, len(m.measured))
	for _, p := range held {
		s, count := m.measured[p], m.count(p)
		if !s.held {
			s = measured{held: true, count: count, weight: m.known[p], rate: float64(m.known[p]) * eventsPerWeight}
		} else if passed > 0 {
			s.follow(float64(count-s.count)/passed.Seconds(), float64(passed)/float64(m.duration))
			s.count = count
		}
		next[p], weights[p] = s, s.weight
	}
	m.at = now
	m.measured = next
	return encodeWeights(weights)
}

// follow takes in the rate of a time that is given in durations. The weight changes only when it is wrong by a whole step, so that it
// changes seldom.
func (s *measured) follow(rate, durations float64) {
	in := float64(risesIn)
	if rate < s.rate {
		in = fallsIn
	}
	s.rate += (rate - s.rate) * (1 - math.Exp(-durations/in))
	exact := stepsPerDouble * math.Log2(max(s.rate/eventsPerWeight/leastWeight, 1))
	if have := stepsPerDouble * math.Log2(float64(s.weight)/leastWeight); math.Abs(exact-have) >= 1 {
		s.weight = int(min(math.Round(leastWeight*math.Exp2(math.Round(exact)/stepsPerDouble)), maxWeight))
	}
}

// merge returns the weights of all partitions, as their holders say, or said last. It returns nil unless all members say weights: then they count
// for nothing. A member without a record is this one, which is about to join.
func (m *meter) merge(members []string, v view) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range members {
		member, ok := v.members[id]
		if ok && !decodeWeights(member.Weights, len(v.leases), func(p, weight int) {
			if v.leases[p].Holder == id {
				m.known[p] = weight
			}
		}) {
			return nil
		}
	}
	return slices.Clone(m.known)
}

// noWeights is what a member writes that has weights on and holds nothing.
const noWeights = "-"

// encodeWeights writes weights as text: runs of partitions that weigh the same, "0-6=1,7=45,9=1". Those of weight 0 are left out.
func encodeWeights(weights []int) string {
	var text []byte
	for p := 0; p < len(weights); {
		end := p + 1
		for end < len(weights) && weights[end] == weights[p] {
			end++
		}
		if weights[p] > 0 {
			if len(text) > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, int64(p), 10)
			if end > p+1 {
				text = append(text, '-')
				text = strconv.AppendInt(text, int64(end-1), 10)
			}
			text = append(text, '=')
			text = strconv.AppendInt(text, int64(weights[p]), 10)
		}
		p = end
	}
	if len(text) == 0 {
		return noWeights
	}
	return string(text)
}

// decodeWeights tells each partition of a text that encodeWeights made, for so many partitions. It returns false if the text is none: empty, as of
// a member that has weights off, or edited.
func decodeWeights(text string, partitions int, tell func(p, weight int)) bool {
	if text == noWeights {
		return true
	}
	for run := range strings.SplitSeq(text, ",") {
		span, value, ok := strings.Cut(run, "=")
		first, last, many := strings.Cut(span, "-")
		if !many {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		weight, err3 := strconv.ParseUint(value, 10, 32)
		if !ok || err1 != nil || err2 != nil || err3 != nil || from > to || to >= uint64(partitions) || weight < 1 || weight > maxWeight {
			return false
		}
		for p := from; p <= to; p++ {
			tell(int(p), int(weight))
		}
	}
	return true
}
