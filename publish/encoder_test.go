package publish

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowHeaders(t *testing.T) {
	t.Parallel()
	cases := []struct {
		text string
		want map[string]string
		err  string // empty: none
	}{
		{``, nil, ""}, // no headers at all
		{`null`, nil, ""},
		{`{}`, nil, ""},
		{` { } `, nil, ""},
		{`{"a":"b"}`, map[string]string{"a": "b"}, ""},
		{"{\n\t\"a\" : \"b\" ,\r \"c\":1 , \"d\" : true,\"e\":false}", map[string]string{"a": "b", "c": "1", "d": "true", "e": "false"}, ""},
		{`{"n": 12345678901234567890.10, "m": -1e400}`, map[string]string{"n": "12345678901234567890.10", "m": "-1e400"}, ""},
		{`{"a": "x\"y\\z\u00e9\/", "b": "é,}{:"}`, map[string]string{"a": `x"y\zé/`, "b": "é,}{:"}, ""},
		{`{"a\u0062": ""}`, map[string]string{"ab": ""}, ""},
		{`{"a": "  x y  "}`, map[string]string{"a": "x y"}, ""},
		{`{"A": "1", "a": "2"}`, map[string]string{"A": "1", "a": "2"}, ""},
		{`[1]`, nil, "bad_headers: headers: not a JSON object"},
		{`7`, nil, "bad_headers: headers: not a JSON object"},
		{`"x"`, nil, "bad_headers: headers: not a JSON object"},
		{`true`, nil, "bad_headers: headers: not a JSON object"},
		{`{"a":`, nil, "bad_headers: headers: not JSON"},
		{`{"a": null}`, nil, `bad_headers: headers: "a": the value is no string, number or boolean`},
		{`{"a": {"b": 1}}`, nil, `bad_headers: headers: "a": the value is no string, number or boolean`},
		{`{"a": [1]}`, nil, `bad_headers: headers: "a": the value is no string, number or boolean`},
		{`{"a": "x\r\ny"}`, nil, `bad_headers: headers: "a": the value has a line end or a NUL`},
		{`{"a": "x\n"}`, nil, `bad_headers: headers: "a": the value has a line end or a NUL`},
		{`{"a": "\u0000"}`, nil, `bad_headers: headers: "a": the value has a line end or a NUL`},
		{`{"": "x"}`, nil, `bad_headers: headers: "" is no name for a header`},
		{`{"a b": "x"}`, nil, `bad_headers: headers: "a b" is no name for a header`},
		{`{"a:": "x"}`, nil, `bad_headers: headers: "a:" is no name for a header`},
		{`{"a\r\nNats-Rollup": "all"}`, nil, `bad_headers: headers: "a\r\nNats-Rollup" is no name for a header`},
		{`{"é": "x"}`, nil, `bad_headers: headers: "é" is no name for a header`},
		{`{"Nats-Rollup": "all"}`, nil, `reserved_header: headers: "Nats-Rollup" is reserved`},
		{`{"nATS-x": "all"}`, nil, `reserved_header: headers: "nATS-x" is reserved`},
		{`{"ok": "1", "OUTLANE-Seq": "all"}`, nil, `reserved_header: headers: "OUTLANE-Seq" is reserved`},
		{`{"nats-": 1}`, nil, `reserved_header: headers: "nats-" is reserved`},
		{`{"nats": 1, "outlanes": 2, "x-nats-y": 3}`, map[string]string{"nats": "1", "outlanes": "2", "x-nats-y": "3"}, ""},
	}
	own := []string{HeaderID, HeaderSeq, HeaderPartition, HeaderKey, headerExpectedStream}
	e := newEncoder("S", &streamInfo{subjects: []string{"a"}, maxMsgSize: -1}, 1<<20)
	for _, c := range cases {
		p := e.encode(&Message{ID: "1", Topic: "a", Headers: []byte(c.text)})
		if c.err != "" {
			require.NotNil(t, p, c.text)
			require.Equal(t, c.err, p.Error.Error(), c.text)
			require.Equal(t, []any{Refused, true, false}, []any{p.Kind, p.Permanent, p.ofStream})
			continue
		}
		require.Nil(t, p, c.text)
		got := map[string]string{}
		for name, values := range e.msg.Header {
			require.Len(t, values, 1)
			got[name] = values[0]
		}
		for _, name := range own {
			require.Contains(t, got, name)
			delete(got, name)
		}
		if c.want == nil {
			c.want = map[string]string{}
		}
		require.Equal(t, c.want, got, c.text)
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	e := newEncoder("S", &streamInfo{subjects: []string{"a"}, maxMsgSize: -1}, 1<<20)
	require.Nil(t, e.encode(&Message{Topic: "a", ContentType: " application/protobuf ", Headers: []byte(`{"content-type":"x","b":"c"}`)}))
	require.Equal(t, []string{"application/protobuf"}, e.msg.Header["Content-Type"])
	require.NotContains(t, e.msg.Header, "content-type")
	require.Nil(t, e.encode(&Message{Topic: "a", Headers: []byte(`{"content-type":"x"}`)}))
	require.NotContains(t, e.msg.Header, "Content-Type")
	require.Equal(t, []string{"x"}, e.msg.Header["content-type"])
	require.Nil(t, e.encode(&Message{Topic: "a", Headers: []byte(`{"Content-Type":"x"}`)}))
	require.Equal(t, []string{"x"}, e.msg.Header["Content-Type"])
	require.Nil(t, e.encode(&Message{Topic: "a"}))
	require.NotContains(t, e.msg.Header, "Content-Type")

	p := e.encode(&Message{Topic: "a", ContentType: "x\r\ny"})
	require.EqualError(t, p.Error, "bad_headers: content_type: the value has a line end or a NUL")
}

func TestLongNamesAreCutInErrors(t *testing.T) {
	t.Parallel()
	e := newEncoder("S", &streamInfo{subjects: []string{"a"}, maxMsgSize: -1}, 1<<20)
	p := e.encode(&Message{Topic: strings.Repeat("a.", 1<<20)})
	require.Less(t, len(p.Error.Error()), 300)
	p = e.encode(&Message{Topic: strings.Repeat("a", 1000) + ".*"})
	require.Less(t, len(p.Error.Error()), 300)
}
