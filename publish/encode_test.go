package publish_test

import (
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/publish"
)

func TestEncodeID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"0199f3a2-7d3c-7cc1-9d5e-000000000001": "0199f3a2-7d3c-7cc1-9d5e-000000000001",
		"a b":                                  "a b", "é/ü+": "é/ü+",
		"":     "%",
		"%":    "%25",
		" a":   "%20a",
		"a ":   "a%20",
		" ":    "%20",
		"a\nb": "a%0Ab", "a\rb": "a%0Db", "\t": "%09", "\x7f": "%7F",
		"a%20": "a%2520",
	} {
		require.Equal(t, want, publish.EncodeID(id), "%q", id)
		require.Equal(t, id, publish.DecodeID(want))
	}
	require.Equal(t, "50%", publish.DecodeID("50%"), "not ours: as it is")
}

func TestIDsSurviveAHeader(t *testing.T) {
	t.Parallel()
	text := rapid.StringOf(rapid.RuneFrom([]rune(" %\r\n\t\x00\x7faé2500ü~")))
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(text, rapid.String()).Draw(t, "id")
		header := publish.EncodeID(id)
		require.NotEmpty(t, header)
		require.Equal(t, header, textproto.TrimString(header))
		require.False(t, strings.ContainsAny(header, "\r\n\x00"))
		require.Equal(t, id, publish.DecodeID(header))
	})
}

func TestKeysSurviveAHeader(t *testing.T) {
	t.Parallel()
	keys := make(map[string]string)
	long := rapid.StringOfN(rapid.RuneFrom([]rune("a %\r\né")), 900, 1200, -1)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(long, rapid.String()).Draw(t, "key")
		header := publish.EncodeKey(key)
		require.LessOrEqual(t, len(header), 1024)
		require.Equal(t, header, textproto.TrimString(header))
		require.Equal(t, header, strings.ToValidUTF8(header, "?"), "no character is cut")
		if other, ok := keys[header]; ok {
			require.Equal(t, other, key)
		}
		keys[header] = key
		if got, whole := publish.DecodeKey(header); whole {
			require.Equal(t, key, got)
		} else {
			require.Greater(t, len(header), 900)
			require.NotRegexp(t, "%.?%~", header, "no code is cut")
		}
	})
}

func TestLongKeys(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("k", 100_000), strings.Repeat("k", 99_999)+"l"
	require.Len(t, publish.EncodeKey(a), 1024)
	require.NotEqual(t, publish.EncodeKey(a), publish.EncodeKey(b))
	require.Equal(t, strings.Repeat("k", 958), strings.SplitN(publish.EncodeKey(a), "%~", 2)[0])
	_, whole := publish.DecodeKey(publish.EncodeKey(a))
	require.False(t, whole)
	exact := strings.Repeat("k", 1024)
	require.Equal(t, exact, publish.EncodeKey(exact))
	key, whole := publish.DecodeKey("a%~b"[:1] + "%25~b")
	require.Equal(t, "a%~b", key)
	require.True(t, whole)
}
