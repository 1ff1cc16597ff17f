package stress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/chaos"
)

// logged writes to a test's log.
type logged struct{ t *testing.T }

func (l logged) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// TestAShortChaosRun is the quick form of `make chaos`. Its plan has a server of each kind killed, and poisoned events.
func TestAShortChaosRun(t *testing.T) {
	t.Parallel()
	opts := chaos.Options{Program: program, Out: logged{t}, Duration: 20 * time.Second, Seed: 30, Rate: 200, Every: 600 * time.Millisecond}
	plan := chaos.Draw(opts.Seed, opts.Duration, opts.Every).String()
	for _, kind := range []string{"worker killed", "NATS killed", "Postgres killed", "poisoned events", "leases edited"} {
		require.Contains(t, plan, kind)
	}
	require.NoError(t, chaos.Run(t.Context(), opts))
}
