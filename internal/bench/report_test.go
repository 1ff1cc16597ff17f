package bench

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTargetsAreOfTheRatioOrOfTheValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  Row
		want any
	}{
		{row("", "x", 3, 1, 2).against("other", 2).target("≥ 0.9"), true},
		{row("", "x", 1, 1, 2).against("other", 2).target("≥ 0.9"), false},
		{row("", "x", 1).against("other", 2).target("≤ 0.5"), true},
		{row("", "x", 1).against("other", 0).target("≥ 1"), false},
		{row("", "ms", 9).target("≤ 8"), false},
		{row("", "", 0).target("≤ 0"), true},
		{row("", "ms", 9), nil},
	} {
		c.row.judge()
		if c.want == nil {
			require.Nil(t, c.row.Met)
			continue
		}
		require.NotNil(t, c.row.Met)
		require.Equal(t, c.want, *c.row.Met, c.row)
	}
}

func TestMediansAndQuantiles(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 1.5, median([]float64{2, 1}))
	require.Zero(t, median(nil))
	sorted := []float64{1, 2, 3, 4}
	require.Equal(t, 2.0, quantile(sorted, 0.5))
	require.Equal(t, 4.0, quantile(sorted, 0.99))
	require.Equal(t, 4.0, quantile(sorted, 1))
	require.Zero(t, quantile(nil, 0.5))
}

func TestFiguresAreReadable(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0.00", 0.1234: "0.123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1,235", 1234567: "1,234,567"} {
		require.Equal(t, want, figure(x))
	}
	require.Equal(t, "64", amount(64))
	require.Equal(t, "-1,000", amount(-1000))
}

func TestMarkdownHasARowForEachFigure(t *testing.T) {
	t.Parallel()
	r := row("one | two", "events/s", 10).against("floor", 20).target("≥ 0.9").note("three")
	r.judge()
	var text bytes.Buffer
	require.NoError(t, Report{Sections: []Section{{Letter: "a", Title: "Title", Rows: []Row{r}}}}.Markdown(&text))
	require.Contains(t, text.String(), "\n### a. Title\n")
	require.Contains(t, text.String(), "\n| one \\| two | 10.0 events/s | floor | 20.0 events/s | 0.50 | ≥ 0.9 | no | three |\n")
}

func TestFieldsOfAPayload(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"n": 12, "text": "x", "team_id": "t_7"}`)
	require.Equal(t, "12", string(field(payload, `"n": `, ',')))
	require.Equal(t, "t_7", string(field(payload, `"team_id": "`, '"')))
	require.Nil(t, field(payload, `"other": `, ','))
}

func TestAProcessIsMeasured(t *testing.T) {
	t.Parallel()
	used, err := cpu(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, used, 0.0)
	peak, err := peakMemory(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, peak, float64(1<<20))
	_, err = parent(os.Getpid())
	require.NoError(t, err)
	_, err = cpu(1 << 30)
	require.Error(t, err)
}
