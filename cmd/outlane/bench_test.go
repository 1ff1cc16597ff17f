package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/bench"
)

func TestBench(t *testing.T) {
	t.Parallel()
	r := outlane(t, nil, "bench", "--events", "3000", "--workers", "1", "--pollers", "4", "-o", "json")
	require.Zero(t, r.code, r.err)
	var report struct{ Results []bench.Result }
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	require.Len(t, report.Results, 2)
	for i, name := range []string{"outlane, 1 worker", "SKIP LOCKED, 4 pollers"} {
		side := report.Results[i]
		require.Equal(t, name, side.Name)
		require.Equal(t, 3000, side.Stored)
		require.Positive(t, side.Rate)
	}
	require.Zero(t, report.Results[0].OutOfOrder)
}

func TestDemoAndBenchRefuseWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--events", "100"}, {"demo", "--teams", "1"}, {"demo", "--rate", "0"},
		{"bench", "--events", "0"}, {"bench", "--workers", "0"}, {"bench", "--pollers", "0"},
	} {
		r := outlane(t, nil, args...)
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.complaint(t), args[1])
	}
}
