package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/worker"
)

// oddEvent is an event as plain SQL may write it.
type oddEvent struct {
	columns string // beside id, stream and partition_key
	values  string
	reason  string // of its dead letter; empty: it is delivered
	names   string // the field that the dead letter's error names
	body    string // delivered: the message's data, unless "*"
}

// oddEvents have values that come from anywhere: an event with one is delivered as it is, or is a dead letter by itself.
var oddEvents = map[string]oddEvent{
	"topic with a space":          {"topic", `'a.b c'`, "bad_subject", "topic", ""},
	"topic with a tab":            {"topic", `E'a.b\tc'`, "bad_subject", "topic", ""},
	"topic with a line end":       {"topic", `E'a.b\r\nPUB x 0\r\n\r\n'`, "bad_subject", "topic", ""},
	"topic with a star":           {"topic", `'a.*'`, "bad_subject", "topic", ""},
	"topic with a tail wildcard":  {"topic", `'a.>'`, "bad_subject", "topic", ""},
	"empty topic":                 {"topic", `''`, "bad_subject", "topic", ""},
	"topic with a leading dot":    {"topic", `'.a'`, "bad_subject", "topic", ""},
	"topic with a trailing dot":   {"topic", `'a.'`, "bad_subject", "topic", ""},
	"topic with an empty token":   {"topic", `'a..b'`, "bad_subject", "topic", ""},
	"topic of JetStream's API":    {"topic", `'$JS.API.STREAM.DELETE.A'`, "bad_subject", "topic", ""},
	"topic of an inbox":           {"topic", `'_INBOX.x'`, "bad_subject", "topic", ""},
	"topic of 10 kB":              {"topic", `'a.' || repeat('x', 10000)`, "bad_subject", "topic", ""},
	"topic beyond ASCII":          {"topic", `'a.größe'`, "", "", "null"},
	"headers are a list":          {"topic, headers", `'a.x', '[1]'`, "bad_headers", "headers", ""},
	"headers are a number":        {"topic, headers", `'a.x', '1'`, "bad_headers", "headers", ""},
	"headers are JSON null":       {"topic, headers", `'a.x', 'null'`, "", "", "null"},
	"header of an object":         {"topic, headers", `'a.x', '{"X": {"y": 1}}'`, "bad_headers", "X", ""},
	"header with a line end":      {"topic, headers", `'a.x', '{"X": "a\r\nNats-Rollup: all"}'`, "bad_headers", "X", ""},
	"header's name with a colon":  {"topic, headers", `'a.x', '{"X: y": "z"}'`, "bad_headers", "X: y", ""},
	"empty header name":           {"topic, headers", `'a.x', '{"": "z"}'`, "bad_headers", "headers", ""},
	"header of the server":        {"topic, headers", `'a.x', '{"Nats-Rollup": "all"}'`, "reserved_header", "Nats-Rollup", ""},
	"header of the server, small": {"topic, headers", `'a.x', '{"nats-expected-last-sequence": "0"}'`, "reserved_header", "nats-expected-last-sequence", ""},
	"header of ours":              {"topic, headers", `'a.x', '{"OUTLANE-Seq": "1"}'`, "reserved_header", "OUTLANE-Seq", ""},
	"header values of all kinds":  {"topic, headers", `'a.x', '{"A": "ü", "B": 1.50, "C": true}'`, "", "", "null"},
	"payload is SQL NULL":         {"topic, payload", `'a.x', NULL`, "", "", ""},
	"payload is JSON null":        {"topic, payload", `'a.x', 'null'`, "", "", "null"},
	"payload with huge numbers":   {"topic, payload", `'a.x', '{"n": 123456789012345678901234567890.1230, "m": 1E+2}'`, "", "", `{"m": 100, "n": 123456789012345678901234567890.1230}`},
	"payload of bytes":            {"topic, payload, payload_bytes, content_type", `'a.x', NULL, '\x00ff0d0a', 'application/protobuf'`, "", "", "\x00\xff\r\n"},
	"payload over the limit":      {"topic, payload", `'a.x', to_jsonb(repeat('x', 1100000))`, "too_large", "payload", ""},
	"payload far over the limit":  {"topic, payload", `'a.x', to_jsonb(repeat('x', 9000000))`, "too_large", "payload", ""},
	"bytes over the limit":        {"topic, payload_bytes", `'a.x', convert_to(repeat('x', 1100000), 'UTF8')`, "too_large", "payload", ""},
	"empty key":                   {"topic", `'a.x'`, "", "", "null"},
	"created_at is infinite":      {"topic, created_at", `'a.x', 'infinity'`, "", "", "null"},
	"created_at in year 20231":    {"topic, created_at", `'a.x', '20231-01-01'`, "", "", "null"},
	"created_at before Christ":    {"topic, created_at", `'a.x', '4000-01-01 BC'`, "", "", "null"},
	"created_at is NULL":          {"topic, created_at", `'a.x', NULL`, "", "", "null"},
}

func TestOddEventsAreDeliveredAsTheyAreOrAreDeadLettersByThemselves(t *testing.T) {
	t.Parallel()
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := pooltest.New(t, 1)
			e.Stream("A", []string{"a.>"}, set)
			e.Start(func(c *worker.Config) { c.MaxAttempts = 1 })
			e.Exec("SET TIME ZONE 'Pacific/Chatham'")
			for name, o := range oddEvents {
				e.Insert("A", "a.before", "k", 1)
				columns, values := o.columns, o.values
				if !strings.Contains(columns, "payload") {
					columns, values = columns+", payload", values+", 'null'"
				}
				key := "k"
				if name == "empty key" {
					key = ""
				}
				e.Exec(fmt.Sprintf("INSERT INTO outbox_events (id, stream, partition_key, %s) VALUES ($1, 'A', $2, %s)", columns, values), name, key)
				e.Insert("A", "a.after", "k", 1)
			}
			e.Drained()
			report := e.Check("A")
			delivered := map[string]jetstream.RawStreamMsg{}
			for _, m := range e.Stored("A") {
				delivered[m.Header.Get(jetstream.MsgIDHeader)] = m
			}
			dead := 0
			for name, o := range oddEvents {
				if o.reason == "" {
					require.Contains(t, delivered, name)
					require.Equal(t, o.body, string(delivered[name].Data), name)
					continue
				}
				dead++
				require.NotContains(t, delivered, name)
				require.Equal(t, 1, e.Count("SELECT count(*) FROM outbox_dead_letters WHERE event_id = $1 AND reason = $2 AND strpos(error, $3) > 0",
					name, o.reason, o.names), "%s\n%s", name, e.Log.Tail())
			}
			require.Equal(t, 3*len(oddEvents)-dead, int(report.Stored), "all others are delivered")
			require.Equal(t, []string{"ü", "1.50", "true", "application/protobuf"}, []string{
				delivered["header values of all kinds"].Header.Get("A"), delivered["header values of all kinds"].Header.Get("B"),
				delivered["header values of all kinds"].Header.Get("C"), delivered["payload of bytes"].Header.Get("Content-Type")})
		})
	}
}

func TestEventsOfAStreamThatCannotExistAreDeadLetters(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 1)
	e.Stream("A", []string{"a.>"})
	e.Start()
	for _, stream := range []string{"A B", "A.B", "a/b", strings.Repeat("s", 300)} {
		e.Insert(stream, "a.x", "k", 2)
	}
	e.Insert("A", "a.x", "k", 1)
	e.Drained()
	require.Equal(t, []string{"9"}, e.Seqs("A"))
	require.Equal(t, 8, e.Count("SELECT count(*) FROM outbox_dead_letters WHERE reason = 'bad_stream' AND attempts = 1"))
	require.Zero(t, e.Log.Has("stream does not take events"))
}

func TestKeysThatOnlyLookEqualAreDifferent(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 64)
	e.Stream("A", []string{"a.>"})
	e.Start()
	long := strings.Repeat("k", 100_000)
	for _, key := range []string{"\u00e9", "e\u0301", "", " ", "K", "k", long} {
		e.Insert("A", "a.x", key, 2)
	}
	e.Drained()
	require.Equal(t, 14, int(e.Check("A").Stored))
	require.Equal(t, 7, e.Count("SELECT count(DISTINCT partition_key) FROM outbox_events"))
}
