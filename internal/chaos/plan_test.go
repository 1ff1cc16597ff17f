package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSameSeedIsTheSamePlan(t *testing.T) {
	a, b := Draw(7, time.Minute, time.Second), Draw(7, time.Minute, time.Second)
	require.Equal(t, a, b)
	require.NotEmpty(t, a.Faults)
	require.NotEqual(t, a.String(), Draw(8, time.Minute, time.Second).String())
}

func TestPlansHaveEveryKindAndKeepTheRules(t *testing.T) {
	const duration = 5 * time.Minute
	byName := map[string]kind{}
	for _, k := range kinds {
		require.NotContains(t, byName, k.name)
		byName[k.name] = k
	}
	seen := map[string]int{}
	for seed := range uint64(60) {
		p := Draw(seed, duration, time.Second)
		held := map[string]time.Duration{}
		last := time.Duration(0)
		for _, f := range p.Faults {
			seen[f.Kind]++
			require.GreaterOrEqual(t, f.At, last)
			last = f.At
			require.LessOrEqual(t, f.At+f.For, duration)
			k := byName[f.Kind]
			if k.hold != nil {
				resource := k.hold(f.Target)
				require.GreaterOrEqual(t, f.At, held[resource], "%s breaks what is broken already", f)
				held[resource] = f.At + f.For
			}
			require.False(t, f.Kind == "prepared transaction" && !p.Pool.PollOnly, "notifications forbid prepared transactions")
		}
	}
	for name := range byName {
		require.Positive(t, seen[name], name)
	}
}
