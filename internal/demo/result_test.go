package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/verify"
)

// perfect is a result without faults: ten events, one of them poisoned.
func perfect() *result {
	r := &result{
		report: verify.Report{Checked: 10, Stored: 9, Streams: make([]verify.StreamReport, 9)},
		load:   &load{poison: "bad"}, faults: &faults{victim: "worker-1"}, opts: Defaults(),
		letters: []string{"bad"}, reason: "reserved_header", tookOver: true,
	}
	r.load.committed.Store(10)
	return r
}

func TestOnlyAPerfectResultIsGood(t *testing.T) {
	t.Parallel()
	require.True(t, perfect().good())
	for want, spoil := range map[string]func(*result){
		"1 lost":                          func(r *result) { r.report.Lost = 1 },
		"1 doubled":                       func(r *result) { r.report.Doubled = 1 },
		"1 out of order":                  func(r *result) { r.report.OutOfOrder = 1 },
		"1 stored and not marked":         func(r *result) { r.report.Unmarked = 1 },
		"1 stored that were never":        func(r *result) { r.report.NoRow = 1 },
		"1 still waiting":                 func(r *result) { r.report.Waiting = 1 },
		"10 committed, 9 checked":         func(r *result) { r.report.Checked = 9 },
		"10 committed, 10 stored":         func(r *result) { r.report.Stored = 10 },
		"0 dead letters":                  func(r *result) { r.letters = nil },
		"2 dead letters":                  func(r *result) { r.letters = []string{"bad", "other"} },
		"1 dead letters instead":          func(r *result) { r.letters = []string{"other"} },
		"partition of worker-1":           func(r *result) { r.tookOver = false },
		"a worker did not end as told: x": func(r *result) { r.unclean = errors.New("x") },
	} {
		r := perfect()
		spoil(r)
		require.False(t, r.good())
		require.Contains(t, r.why(), want)
		var text strings.Builder
		r.print(&text)
		require.Contains(t, text.String(), "FAULTS")
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	perfect().print(&text)
	for _, line := range []string{"events +10 ", "stored +9 ", "lost +0", "out of order +0", "doubled +0", "dead letters +1 ", "rate ", "latency p50, p99 ", "takeover "} {
		require.Regexp(t, "(?m)^ +"+line, text.String())
	}
	require.NotContains(t, text.String(), "FAULTS")
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	r := perfect()
	r.tookOver = false
	r.load.at = map[string]time.Time{"a": at(0), "b": at(1), "c": at(2000)}
	r.faults.killedAt = at(1000)
	r.faults.partitions = map[int]time.Time{7: at(1500)}
	r.faults.windows = []window{{at(1000), at(3000)}}
	m := measure{result: r, perSecond: map[int64]int{}}
	m.take(history.Message{ID: "a", Partition: 7, Time: at(10)})
	m.take(history.Message{ID: "b", Partition: 6, Time: at(21)})
	m.take(history.Message{ID: "c", Partition: 7, Time: at(2500)})
	m.take(history.Message{ID: "unknown", Partition: 6, Time: at(2700)})
	m.finish()
	require.Equal(t, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}, r.quiet)
	require.Equal(t, 500*time.Millisecond, quantile(r.all, 0.99))
	require.Equal(t, 10*time.Millisecond, quantile(r.quiet, 0))
	require.Zero(t, quantile(nil, 0.5))
	require.True(t, r.tookOver)
	require.Equal(t, 1500*time.Millisecond, r.takeover)
	require.Equal(t, 500*time.Millisecond, r.allTakeover)
	require.EqualValues(t, 2, r.best)
}

func TestDisplay(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	d := newDisplay(&text, 0)
	d.say("hello %d", 1)
	d.status("first")
	d.status("too soon")
	d.clear()
	require.Equal(t, "   0s  hello 1\n   0s  first\n", text.String())

	text.Reset()
	d = newDisplay(&text, 20)
	d.status("a status that is longer than the line")
	d.say("hello")
	require.Equal(t, "\r\x1b[K   0s  a status tha\r\x1b[K   0s  hello\n", text.String())
}

func TestCountAndSpan(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"0", "999", "1,000", "60,004", "1,234,567"}, []string{count(0), count(999), count(1000), count(60004), count(1234567)})
	require.Equal(t, []string{"3.2ms", "57ms", "3.41s"}, []string{span(3215 * time.Microsecond), span(57300 * time.Microsecond), span(3412 * time.Millisecond)})
}
