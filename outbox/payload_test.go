package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/internal/pgtest"
)

// jsonText draws a JSON text as a careless program may write it.
func jsonText(exponents bool) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "})
	piece := rapid.SampledFrom([]string{"a", "é", "日", "😀", "/", ":", ",", "[", "e", "E9", "\u2028", "\x7f", `\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`,
		`\u0041`, `\u00e9`, `\u65e5`, `\uD83D\uDE00`, `\u0001`, `\u001f`, `\u000a`, `\u0022`, `\u005C`, `\\u0000`})
	text := rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "") + `"`
	})
	numbers := []string{"0", "-1", "1.50", "0.1", "123456789012345678901234567890"}
	if exponents {
		numbers = append(numbers, "1e5", "1E+20", "-2.5e-7", "0e3", "1e308", "1e-0", "-0.000")
	}
	scalar := rapid.OneOf(rapid.SampledFrom(append(numbers, "true", "false", "null")), text)
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		if depth == 0 {
			return scalar
		}
		return rapid.Custom(func(t *rapid.T) string {
			kind := rapid.IntRange(0, 2).Draw(t, "kind")
			if kind == 0 {
				return scalar.Draw(t, "scalar")
			}
			var parts []string
			for i := range rapid.IntRange(0, 4).Draw(t, "length") {
				part := value(depth-1).Draw(t, "value") + space.Draw(t, "space")
				if kind == 1 {
					// The number keeps the names apart: of repeated ones Postgres keeps the last.
					part = fmt.Sprintf(`"%d%s%s:%s%s`, i, text.Draw(t, "name")[1:], space.Draw(t, "space"), space.Draw(t, "space"), part)
				}
				parts = append(parts, space.Draw(t, "space")+part)
			}
			if kind == 1 {
				return "{" + strings.Join(parts, ",") + space.Draw(t, "space") + "}"
			}
			return "[" + space.Draw(t, "space") + strings.Join(parts, ",") + "]"
		})
	}
	return value(3)
}

func TestInspectCountsWhatPostgresPrints(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.Database(t))
	printed := func(text string) (n int) {
		require.NoError(t, conn.QueryRow(context.Background(), "SELECT octet_length(($1::text::jsonb)::text)", text).Scan(&n), text)
		return n
	}
	t.Run("exactly without exponents", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			text := jsonText(false).Draw(rt, "text")
			require.True(rt, json.Valid([]byte(text)), text)
			size, reason := inspect([]byte(text))
			require.Empty(rt, reason)
			require.Equal(rt, printed(text), size, text)
		})
	})
	t.Run("at least with exponents", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			text := jsonText(true).Draw(rt, "text")
			size, reason := inspect([]byte(text))
			require.Empty(rt, reason)
			require.LessOrEqual(rt, printed(text), size, text)
		})
	})
	t.Run("and refuses what Postgres refuses", func(t *testing.T) {
		for _, text := range []string{`"\u0000"`, `"\ud800"`, `"\ud800x"`, `"\ud83d\u0041"`, `"\udc00\ud800"`, `["a","\\\u0000"]`} {
			_, reason := inspect([]byte(text))
			require.NotEmpty(t, reason, text)
			var out string
			require.Error(t, conn.QueryRow(context.Background(), "SELECT ($1::text::jsonb)::text", text).Scan(&out), text)
		}
	})
}
