package stress_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/internal/verify"
	"github.com/outlane/outlane/partition"
	"github.com/outlane/outlane/store"
)

// largeEvents is how many events the memory test has; 1000 is the whole of it.
var largeEvents = flag.Int("large-events", 300, "how many large events the memory test has")

const (
	largeBytes = 900_000
	memoryMiB  = 256
)

func TestLargeEventsAreDeliveredInLittleMemory(t *testing.T) {
	for name, c := range map[string]struct {
		lanes int
		mode  string
	}{"one lane": {1, "sync"}, "eight lanes": {8, "fast"}} {
		t.Run(name, func(t *testing.T) {
			e := pooltest.New(t, 8)
			e.Stream("A", []string{"a.>"}, modes[c.mode])
			for p := range c.lanes {
				e.Exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT 'A', 'a.large', $1, to_jsonb(repeat('x', $2)) FROM generate_series(1, $3)`,
					keyOf(p, 8), largeBytes, *largeEvents/c.lanes)
			}
			w := e.Process(program, "w1")
			e.Drained()
			highest := peakMiB(t, w.PID())
			t.Logf("%d events of %d bytes: at most %d MiB", *largeEvents, largeBytes, highest)
			require.Less(t, highest, memoryMiB)
			require.Equal(t, 8, w.Owns(), "the worker has been up all the time")
			verified(t, e, *largeEvents/c.lanes*c.lanes)
		})
	}
}

// verified requires that so many events are stored, and that nothing is wrong. It does not read their bodies.
func verified(t *testing.T, e *pooltest.Env, events int) {
	t.Helper()
	s, err := store.Open(store.Config{URL: e.URL})
	require.NoError(t, err)
	defer s.Close()
	report, err := verify.Run(t.Context(), verify.Options{Store: s, JetStream: e.JS, Complete: true})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report)
	require.EqualValues(t, events, report.Stored)
}

// keyOf is a key of the partition.
func keyOf(p, partitions int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", i); partition.Of(key, partitions) == p {
			return key
		}
	}
}

// peakMiB is the most memory that a process ever had resident.
func peakMiB(t *testing.T, pid int) (mib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	_, err = fmt.Sscan(rest, &mib)
	require.NoError(t, err)
	return mib / 1024
}
