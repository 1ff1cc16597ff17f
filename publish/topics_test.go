package publish_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/publish"
)

func TestValidateTopic(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "payout.generated", "é.ü", "a*b.c>d", "a-b_c", strings.Repeat("a", 2048), "a.$b"} {
		require.NoError(t, publish.ValidateTopic(good), good)
	}
	for bad, why := range map[string]string{
		"":                        "it is empty",
		".a":                      "empty token",
		"a.":                      "empty token",
		"a..b":                    "empty token",
		".":                       "empty token",
		"a.*":                     "wildcard",
		"*":                       "wildcard",
		"a.>":                     "wildcard",
		">":                       "wildcard",
		"a b":                     "space",
		" a":                      "space",
		"a\tb":                    "control",
		"a\r\nPUB x 1\r\ny":       "control",
		"a\x00b":                  "control",
		"a\x7f":                   "control",
		"$JS.API.STREAM.DELETE.S": "begins with $",
		"$SYS.x":                  "begins with $",
		"$KV.b.k":                 "begins with $",
		"$":                       "begins with $",
		strings.Repeat("a", 2049): "2049 bytes",
	} {
		require.ErrorContains(t, publish.ValidateTopic(bad), why, "%q", bad)
	}
}

func TestValidatePattern(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "a.*", "*.a.>", ">", "*"} {
		require.NoError(t, publish.ValidatePattern(good), good)
	}
	for _, bad := range []string{"", "a..b", ">.a", "a.>.b", "a b", "$JS.>", "a."} {
		require.Error(t, publish.ValidatePattern(bad), bad)
	}
}

func TestMatchTopic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "a.b", false}, {"a.b", "a", false},
		{"*", "a", true}, {"*", "a.b", false}, {"*.b", "a.b", true}, {"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false},
		{">", "a", true}, {">", "a.b.c", true}, {"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "b.c", false},
		{"a.*.>", "a.b", false}, {"a.*.>", "a.b.c", true},
		{"a*", "ab", false}, {"a*", "a*", true}, {"payout.>", "payouts.x", false},
	} {
		require.Equal(t, c.want, publish.MatchTopic(c.pattern, c.topic), "%s %s", c.pattern, c.topic)
	}
}

func TestMatchTopicIsTheServersOpinion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		topic := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 4).Draw(t, "topic"), ".")
		tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 0, 4).Draw(t, "pattern")
		if len(tokens) == 0 || rapid.Bool().Draw(t, "tail") {
			tokens = append(tokens, ">")
		}
		pattern := strings.Join(tokens, ".")
		require.Equal(t, server.SubjectsCollide(pattern, topic), publish.MatchTopic(pattern, topic), "%s %s", pattern, topic)
	})
}

func TestValidateRoute(t *testing.T) {
	t.Parallel()
	require.NoError(t, publish.Route{Topics: []string{"a.>", "b"}, Stream: "S"}.Validate())
	require.ErrorContains(t, publish.Route{Topics: []string{"a.>"}}.Validate(), "stream")
	require.ErrorContains(t, publish.Route{Topics: []string{"a.>"}, Stream: "S.x"}.Validate(), "stream")
	require.ErrorContains(t, publish.Route{Stream: "S"}.Validate(), "topics")
	require.ErrorContains(t, publish.Route{Topics: []string{"a", "b..c"}, Stream: "S"}.Validate(), `"b..c" has an empty token`)
}

func TestValidateStreamName(t *testing.T) {
	t.Parallel()
	require.NoError(t, publish.ValidateStreamName("STREAM_PAYOUT"))
	require.NoError(t, publish.ValidateStreamName("é$-x"))
	for _, bad := range []string{"", "a b", "a.b", "a*", "a>", "a/b", `a\b`, "a\nb", strings.Repeat("a", 256)} {
		require.Error(t, publish.ValidateStreamName(bad), bad)
	}
}
