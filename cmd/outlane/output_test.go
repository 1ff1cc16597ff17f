package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/redact"
)

func TestFormsForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		require.Equal(t, want, count(n))
	}
	for d, want := range map[time.Duration]string{
		0: "0.0s", 440 * time.Millisecond: "0.4s", 12 * time.Second: "12s", 200 * time.Second: "3m20s", 5*time.Hour + 6*time.Minute: "5h6m", 76 * time.Hour: "3d4h",
	} {
		require.Equal(t, want, span(d))
	}
	require.Equal(t, "0-2, 5, 7-8", ranges([]int{0, 1, 2, 5, 7, 8}))
	require.Equal(t, "äö…", cut("äöüß", 3))
	require.Equal(t, "a b�c", plain("a\nb\x1bc"))

	var b bytes.Buffer
	require.NoError(t, table(&b, [][]string{{"A", "B"}, {"\x1b[31mred", ""}}))
	require.Equal(t, "A         B\n�[31mred  -\n", b.String())
}

func TestLanesThatWaitForTheSameAreOneLine(t *testing.T) {
	t.Parallel()
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	lane := func(stream string, partition int, reason string, since time.Time) stuckView {
		return stuckView{What: "lane", Name: "x", Lane: &laneID{stream, partition}, Reason: reason, Since: &since}
	}
	lines := gather([]stuckView{
		{What: "partitions", Name: "0"}, lane("A", 2, "down", late), lane("A", 1, "down", early), lane("A", 3, "full", late), lane("B", 1, "down", late),
	})
	require.Len(t, lines, 4)
	require.Equal(t, "partitions", lines[0].What)
	require.Equal(t, "2 lanes", lines[1].What)
	require.Equal(t, "A/1-2", lines[1].Name)
	require.Equal(t, early, *lines[1].Since)
	require.Equal(t, "lane", lines[2].What)
}

func TestReportHidesSecretsAndKeepsToOneLine(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	a := &app{err: &stderr, redact: redact.New("hunter2")}
	require.Equal(t, exitFailed, a.report(errors.New("dial hunter2\nvia postgres://u:pw@h/d")))
	require.Equal(t, "outlane: dial *** via postgres://u:***@h/d\n", stderr.String())
}
