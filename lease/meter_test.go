package lease

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/partition"
)

func decoded(text string, partitions int) ([]int, bool) {
	weights := make([]int, partitions)
	ok := decodeWeights(text, partitions, func(p, w int) { weights[p] = w })
	return weights, ok
}

func TestWeightsAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0-6=1,7=45,9=1", encodeWeights([]int{1, 1, 1, 1, 1, 1, 1, 45, 0, 1, 0}))
	require.Equal(t, "-", encodeWeights(make([]int, 9)))
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 1, 1, 2, 45, maxWeight}), 1, 40).Draw(t, "weights")
		read, ok := decoded(encodeWeights(weights), len(weights))
		require.True(t, ok)
		require.Equal(t, weights, read)
		_, _ = decoded(rapid.StringMatching(`[-0-9=,x]{0,20}`).Draw(t, "edited"), 16) // never panics
	})
	for _, odd := range []string{"", "x", "1", "1=", "=1", "1=0", "1=65537", "16=1", "0-16=1", "2-1=1", "1=1,", "1=1 ", "-1=1", "0--=1", "1=-1", "1=99999999999999999999"} {
		_, ok := decoded(odd, 16)
		require.False(t, ok, "%q", odd)
	}
	full := make([]int, partition.MaxPartitions)
	for p := range full {
		full[p] = 1 + p%2*45
	}
	require.Less(t, len(encodeWeights(full)), 64<<10, "fits an annotation")
}

// run samples a partition with a steady rate every second, and returns its weight.
func (m *meter) run(from time.Time, seconds int, count *uint64, rate float64) string {
	text := ""
	for i := 1; i <= seconds; i++ {
		*count += uint64(rate)
		text = m.sample(from.Add(time.Duration(i)*time.Second), []int{0})
	}
	return text
}

func TestAWeightFollowsTheRateSlowly(t *testing.T) {
	t.Parallel()
	var count uint64
	m := newMeter(1, 10*time.Second, func(int) uint64 { return count })
	now := time.Unix(1000, 0)
	step := func(seconds int, rate float64) string {
		text := m.run(now, seconds, &count, rate)
		now = now.Add(time.Duration(seconds) * time.Second)
		return text
	}
	require.Equal(t, "0=10", m.sample(now, []int{0}))
	require.Equal(t, "0=10", step(600, 90), "not worth speaking of")
	require.Equal(t, "0=10", step(1, 900), "a moment's burst")
	require.Equal(t, "0=640", step(600, 6400))
	require.Equal(t, "0=640", step(30, 0), "a pause")
	require.Equal(t, "0=640", step(3600, 5700), "within a step")
	require.Equal(t, "0=10", step(3600, 0))
	require.Equal(t, "-", m.sample(now, nil), "held no more")

	m.known[0] = 45
	require.Equal(t, "0=45", m.sample(now, []int{0}), "what the last holder said")
	count += 1 << 40
	require.Equal(t, "0=45", m.sample(now, []int{0}), "no time has passed")
	require.Equal(t, "0=65536", step(60, 1e9), "there is an end")
	require.Equal(t, "0=65536", step(60, 1e9), "and it is stayed at")
}

func TestAWeightStaysWhileTheRateJitters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := math.Exp2(rapid.Float64Range(0, 19).Draw(t, "rate"))
		s := measured{weight: rapid.SampledFrom([]int{10, 30, 640, 10000}).Draw(t, "weight")}
		s.rate = float64(s.weight) * eventsPerWeight
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		follow := func() { s.follow(rate*(0.8+0.4*random.Float64()), 1.0/3) }
		for range 2000 {
			follow()
		}
		require.InEpsilon(t, max(rate, 100)*1.1, float64(s.weight*eventsPerWeight), 0.35)
		before, changes := s.weight, 0
		for range 1000 {
			if follow(); s.weight != before {
				before = s.weight
				changes++
			}
		}
		require.LessOrEqual(t, changes, 2)
	})
}
