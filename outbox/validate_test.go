package outbox_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/outbox"
)

type object map[string]any

func TestInvalidEventsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	header := func(name, value string) outbox.Event {
		return outbox.Event{Topic: "a.b", Headers: map[string]string{name: value}}
	}
	body := func(payload any) outbox.Event { return outbox.Event{Topic: "a.b", Payload: payload} }
	cases := map[string]struct {
		event  outbox.Event
		kind   error
		field  string
		reason string
	}{
		"no topic":               {outbox.Event{}, outbox.ErrTopic, "Topic", "empty"},
		"topic with star":        {outbox.Event{Topic: "a.*"}, outbox.ErrTopic, "Topic", "wildcard"},
		"topic with tail":        {outbox.Event{Topic: "a.>"}, outbox.ErrTopic, "Topic", "wildcard"},
		"topic with star inside": {outbox.Event{Topic: "a.b*c"}, outbox.ErrTopic, "Topic", "wildcard"},
		"topic with space":       {outbox.Event{Topic: "a b"}, outbox.ErrTopic, "Topic", "space"},
		"topic with tab":         {outbox.Event{Topic: "a\tb"}, outbox.ErrTopic, "Topic", "space"},
		"topic with line break":  {outbox.Event{Topic: "a\r\nPUB x"}, outbox.ErrTopic, "Topic", "control"},
		"topic with NUL":         {outbox.Event{Topic: "a\x00b"}, outbox.ErrTopic, "Topic", "NUL"},
		"topic not UTF-8":        {outbox.Event{Topic: "a\xffb"}, outbox.ErrTopic, "Topic", "UTF-8"},
		"topic begins with dot":  {outbox.Event{Topic: ".a"}, outbox.ErrTopic, "Topic", "empty part"},
		"topic ends with dot":    {outbox.Event{Topic: "a."}, outbox.ErrTopic, "Topic", "empty part"},
		"topic with two dots":    {outbox.Event{Topic: "a..b"}, outbox.ErrTopic, "Topic", "empty part"},
		"topic of the server":    {outbox.Event{Topic: "$JS.API.STREAM.PURGE.S"}, outbox.ErrTopic, "Topic", "belong to the NATS server"},
		"topic of an inbox":      {outbox.Event{Topic: "_INBOX.x"}, outbox.ErrTopic, "Topic", "belong to the NATS server"},
		"topic too long":         {outbox.Event{Topic: strings.Repeat("a", 1025)}, outbox.ErrTopic, "Topic", "1024 is the limit"},
		"stream with dot":        {outbox.Event{Topic: "a", Stream: "S.T"}, outbox.ErrStream, "Stream", `'.'`},
		"stream with space":      {outbox.Event{Topic: "a", Stream: "S T"}, outbox.ErrStream, "Stream", "space"},
		"stream with NUL":        {outbox.Event{Topic: "a", Stream: "S\x00"}, outbox.ErrStream, "Stream", "NUL"},
		"stream too long":        {outbox.Event{Topic: "a", Stream: strings.Repeat("S", 256)}, outbox.ErrStream, "Stream", "255 is the limit"},
		"id with line break":     {outbox.Event{Topic: "a", ID: "x\ny"}, outbox.ErrID, "ID", "line break"},
		"id with outer space":    {outbox.Event{Topic: "a", ID: "x "}, outbox.ErrID, "ID", "space"},
		"id too long":            {outbox.Event{Topic: "a", ID: strings.Repeat("x", 256)}, outbox.ErrID, "ID", "255 is the limit"},
		"key with NUL":           {outbox.Event{Topic: "a", Key: "t\x00"}, outbox.ErrKey, "Key", "NUL"},
		"key not UTF-8":          {outbox.Event{Topic: "a", Key: "\xc3"}, outbox.ErrKey, "Key", "UTF-8"},
		"content type with CR":   {outbox.Event{Topic: "a", ContentType: "a\rb"}, outbox.ErrContentType, "ContentType", "line break"},
		"content type too long":  {outbox.Event{Topic: "a", ContentType: strings.Repeat("x", 256)}, outbox.ErrContentType, "ContentType", "limit"},
		"server's header":        {header("Nats-Rollup", "all"), outbox.ErrReservedHeader, `Headers["Nats-Rollup"]`, "reserved"},
		"server's, lower case":   {header("nats-msg-id", "1"), outbox.ErrReservedHeader, `Headers["nats-msg-id"]`, "reserved"},
		"Outlane's header":       {header("OUTLANE-SEQ", "1"), outbox.ErrReservedHeader, `Headers["OUTLANE-SEQ"]`, "reserved"},
		"content type as header": {header("content-type", "a/b"), outbox.ErrReservedHeader, `Headers["content-type"]`, "ContentType"},
		"header without name":    {header("", "x"), outbox.ErrHeader, `Headers[""]`, "empty name"},
		"header name, colon":     {header("a:b", "x"), outbox.ErrHeader, `Headers["a:b"]`, "colon"},
		"header name, break":     {header("a\nb", "x"), outbox.ErrHeader, `Headers["a\nb"]`, "control"},
		"header name, not ASCII": {header("é", "x"), outbox.ErrHeader, `Headers["é"]`, "ASCII"},
		"header name too long":   {header(strings.Repeat("h", 256), "x"), outbox.ErrHeader, "", "255 is the limit"},
		"header value, break":    {header("a", "x\r\nNats-Rollup: all"), outbox.ErrHeader, `Headers["a"]`, "line break"},
		"header value, NUL":      {header("a", "x\x00"), outbox.ErrHeader, `Headers["a"]`, "NUL"},
		"header value, bell":     {header("a", "x\a"), outbox.ErrHeader, `Headers["a"]`, "control"},
		"header value, space":    {header("a", " x"), outbox.ErrHeader, `Headers["a"]`, "space"},
		"two bodies":             {outbox.Event{Topic: "a", Payload: 1, Bytes: []byte{1}}, outbox.ErrPayload, "Payload", "one body"},
		"bytes as payload":       {body([]byte(`{}`)), outbox.ErrPayload, "Payload", "json.RawMessage"},
		"not JSON":               {body(json.RawMessage(`{"a":}`)), outbox.ErrPayload, "Payload", "not valid JSON"},
		"two JSON values":        {body(json.RawMessage(`{} {}`)), outbox.ErrPayload, "Payload", "not valid JSON"},
		"empty JSON text":        {body(json.RawMessage(``)), outbox.ErrPayload, "Payload", "not valid JSON"},
		"JSON not UTF-8":         {body(json.RawMessage("\"\xff\"")), outbox.ErrPayload, "Payload", "UTF-8"},
		"cannot be JSON":         {body(object{"a": math.Inf(1)}), outbox.ErrPayload, "Payload", "turned into JSON"},
		"NUL in a string":        {body(object{"a": "x\x00"}), outbox.ErrPayload, "Payload", `\u0000`},
		"NUL in raw JSON":        {body(json.RawMessage(`{"a":"\\\u0000"}`)), outbox.ErrPayload, "Payload", `\u0000`},
		"NUL in a name":          {body(json.RawMessage(`{"\u0000":1}`)), outbox.ErrPayload, "Payload", `\u0000`},
		"half a surrogate pair":  {body(json.RawMessage(`"\ud800"`)), outbox.ErrPayload, "Payload", "surrogate"},
		"lone low surrogate":     {body(json.RawMessage(`"\udc00"`)), outbox.ErrPayload, "Payload", "surrogate"},
		"two high surrogates":    {body(json.RawMessage(`"\ud83d\ud83d"`)), outbox.ErrPayload, "Payload", "surrogate"},
		"large payload":          {body(strings.Repeat("x", 1<<20-4096)), outbox.ErrTooLarge, "Payload", "1048576 is the limit"},
		"large bytes":            {outbox.Event{Topic: "a", Bytes: make([]byte, 1<<20)}, outbox.ErrTooLarge, "Bytes", "limit"},
		"large headers":          {header("a", strings.Repeat("x", 1<<20)), outbox.ErrTooLarge, "Headers", "limit"},
		// Postgres prints a space after each comma, and that is what is published.
		"large once printed": {body(json.RawMessage("[" + strings.Repeat("1,", 400_000) + "1]")), outbox.ErrTooLarge, "Payload", "limit"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Without a transaction any attempt to send would panic.
			err := outbox.Enqueue(context.Background(), nil, outbox.Event{Topic: "good"}, c.event)
			var invalid *outbox.ValidationError
			require.ErrorAs(t, err, &invalid)
			require.ErrorIs(t, err, c.kind)
			require.Equal(t, 1, invalid.Index)
			if c.field != "" {
				require.Equal(t, c.field, invalid.Field)
			}
			require.Contains(t, invalid.Reason, c.reason)
			require.ErrorContains(t, err, "event 1: "+invalid.Field)
			require.ErrorIs(t, outbox.EnqueueSQL(context.Background(), nil, c.event), c.kind)
		})
	}
}

func TestSizeLimitCanBeChangedAndSwitchedOff(t *testing.T) {
	t.Parallel()
	big := outbox.Event{Topic: "a", Bytes: make([]byte, 3<<20)}
	small := outbox.Event{Topic: "a", Bytes: make([]byte, 10_000)}
	require.ErrorIs(t, outbox.New(outbox.MaxBytes(8192)).Enqueue(context.Background(), nil, small), outbox.ErrTooLarge)
	tx := &recorder{}
	require.NoError(t, outbox.New(outbox.MaxBytes(8<<20)).EnqueueSQL(context.Background(), tx, big))
	require.NoError(t, outbox.New(outbox.MaxBytes(0)).EnqueueSQL(context.Background(), tx, big))
	require.Len(t, tx.queries, 2)
}
