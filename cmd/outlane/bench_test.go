package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/bench"
)

// TestBench runs a section with next to nothing. `make bench SMOKE=1` does so with all of them.
func TestBench(t *testing.T) {
	t.Parallel()
	doc := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(doc, []byte("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n"), 0o600))
	r := outlane(t, nil, "bench", "--smoke", "--only", "c", "-o", "json", "--write", doc)
	require.Zero(t, r.code, r.err)
	var report bench.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	require.Len(t, report.Sections, 1)
	require.NotEmpty(t, report.Sections[0].Rows)
	for _, row := range report.Sections[0].Rows {
		require.Positive(t, row.Value, row.Name)
		require.NotContains(t, row.Note, "missing")
	}
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^before\n<!-- bench -->\n.*\| 1 worker beside 5,000 processed rows \|.*<!-- /bench -->\nafter\n$`, string(text))
	require.NotContains(t, string(text), "old")
}

func TestDemoAndBenchRefuseWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--events", "100"}, {"demo", "--teams", "1"}, {"demo", "--rate", "0"},
		{"bench", "--only", "a,z"}, {"bench", "--write", "/nowhere/to/be/found.md"},
	} {
		r := outlane(t, nil, args...)
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.complaint(t), args[1])
	}
}
