package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxID          = 255
	maxStream      = 255
	maxTopic       = 1024
	maxHeaderName  = 255
	maxContentType = 255

	// headerReserve is what the worker's own headers may take beside the event's id and stream.
	headerReserve = 4096
)

// prepare validates an event and fills in what the database should not.
func (o *Outbox) prepare(index int, e Event) (record, error) {
	r := record{Event: e}
	invalid := func(kind error, field, reason string) (record, error) {
		return record{}, &ValidationError{Index: index, Field: field, Reason: reason, kind: kind}
	}
	if e.ID == "" {
		id, err := newID()
		if err != nil {
			return record{}, err
		}
		r.ID = id
	} else if reason := checkID(e.ID); reason != "" {
		return invalid(ErrID, "ID", reason)
	}
	if reason := checkStream(e.Stream); reason != "" {
		return invalid(ErrStream, "Stream", reason)
	}
	if reason := checkTopic(e.Topic); reason != "" {
		return invalid(ErrTopic, "Topic", reason)
	}
	if reason := checkText(e.Key); reason != "" {
		return invalid(ErrKey, "Key", reason)
	}
	if reason := checkContentType(e.ContentType); reason != "" {
		return invalid(ErrContentType, "ContentType", reason)
	}
	size := len(r.ID) + len(e.Stream) + len(e.ContentType) + headerReserve
	for name, value := range e.Headers {
		if reason, kind := checkHeader(name, value); reason != "" {
			return invalid(kind, fmt.Sprintf("Headers[%q]", name), reason)
		}
		size += len(name) + len(value) + len(": \r\n")
	}
	body, field := len(e.Bytes), "Bytes"
	if e.Bytes == nil {
		field = "Headers"
	}
	if e.Payload != nil {
		if e.Bytes != nil {
			return invalid(ErrPayload, "Payload", "is set, and Bytes too: an event has one body")
		}
		text, reason := marshal(e.Payload)
		if reason == "" {
			body, reason = inspect(text)
		}
		if reason != "" {
			return invalid(ErrPayload, "Payload", reason)
		}
		r.payload, field = text, "Payload"
	}
	if size += body; o.maxBytes > 0 && size > o.maxBytes {
		return invalid(ErrTooLarge, field, fmt.Sprintf("makes a message of %d bytes with its headers, and %d is the limit", size, o.maxBytes))
	}
	if len(e.Headers) > 0 {
		headers, err := json.Marshal(e.Headers)
		if err != nil {
			return record{}, fmt.Errorf("turn headers into JSON: %w", err)
		}
		r.headers = headers
	}
	return r, nil
}

// checkText says what keeps a text from being stored by Postgres.
func checkText(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if strings.IndexByte(s, 0) >= 0 {
		return "has a NUL character, which Postgres cannot store"
	}
	return ""
}

func checkID(id string) string {
	if len(id) > maxID {
		return fmt.Sprintf("has %d bytes, and %d is the limit", len(id), maxID)
	}
	return checkHeaderValue(id)
}

func checkStream(name string) string {
	if len(name) > maxStream {
		return fmt.Sprintf("has %d bytes, and %d is the limit", len(name), maxStream)
	}
	if reason := checkText(name); reason != "" {
		return reason
	}
	if strings.ContainsFunc(name, isSpaceOrControl) {
		return "has a space or a control character"
	}
	if i := strings.IndexAny(name, `.*>/\`); i >= 0 {
		return fmt.Sprintf("has the character %q, which stream names cannot have", name[i])
	}
	return ""
}

func checkTopic(topic string) string {
	if topic == "" {
		return "is empty"
	}
	if len(topic) > maxTopic {
		return fmt.Sprintf("has %d bytes, and %d is the limit", len(topic), maxTopic)
	}
	if reason := checkText(topic); reason != "" {
		return reason
	}
	if strings.ContainsFunc(topic, isSpaceOrControl) {
		return "has a space or a control character"
	}
	if i := strings.IndexAny(topic, "*>"); i >= 0 {
		return fmt.Sprintf("has the wildcard %q: an event is published to one subject", topic[i])
	}
	if strings.HasPrefix(topic, ".") || strings.HasSuffix(topic, ".") || strings.Contains(topic, "..") {
		return "has an empty part between its dots"
	}
	if strings.HasPrefix(topic, "$") || strings.HasPrefix(topic, "_INBOX.") {
		return "begins with $ or _INBOX., which belong to the NATS server"
	}
	return ""
}

func checkContentType(value string) string {
	if len(value) > maxContentType {
		return fmt.Sprintf("has %d bytes, and %d is the limit", len(value), maxContentType)
	}
	return checkHeaderValue(value)
}

func checkHeader(name, value string) (reason string, kind error) {
	if name == "" {
		return "has an empty name", ErrHeader
	}
	if len(name) > maxHeaderName {
		return fmt.Sprintf("has a name of %d bytes, and %d is the limit", len(name), maxHeaderName), ErrHeader
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == ':' {
			return "has a name with a space, a colon, a control character or a character outside ASCII", ErrHeader
		}
	}
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "outlane-") {
		return "is reserved: names with Nats- and Outlane- belong to the server and to Outlane", ErrReservedHeader
	}
	if lower == "content-type" {
		return "is reserved: use the field ContentType", ErrReservedHeader
	}
	return checkHeaderValue(value), ErrHeader
}

// checkHeaderValue says why a text cannot be the value of a NATS header and come back as it was.
func checkHeaderValue(s string) string {
	if reason := checkText(s); reason != "" {
		return reason
	}
	if strings.ContainsAny(s, "\r\n") {
		return "has a line break"
	}
	if strings.ContainsFunc(s, isControl) {
		return "has a control character"
	}
	if strings.TrimSpace(s) != s {
		return "begins or ends with a space, which headers do not keep"
	}
	return ""
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func isSpaceOrControl(r rune) bool { return r <= ' ' || r == 0x7f }
