package publish

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

const (
	headerExpectedStream = "Nats-Expected-Stream"
	headerContentType    = "Content-Type"

	// maxHeaders is the server's limit for a stored message's headers, as they go over the wire.
	maxHeaders = 1<<16 - 1

	headerStart = len("NATS/1.0\r\n") + len("\r\n")
	headerExtra = len(": ") + len("\r\n")
)

// encoder makes wire messages, one at a time, and reuses what it can: a call sends a thousand of them.
type encoder struct {
	info       *streamInfo
	maxPayload int

	msg       nats.Msg // valid until the next encode
	size      int      // of the headers
	lastTopic string   // found valid
	partition int
	rowNames  []string // headers that the last row had of its own

	id, seq, part, key, contentType []string
}

func newEncoder(stream string, info *streamInfo, maxPayload int) *encoder {
	e := &encoder{
		info: info, maxPayload: maxPayload, partition: -1,
		id: make([]string, 1), seq: make([]string, 1), part: make([]string, 1), key: make([]string, 1), contentType: make([]string, 1),
	}
	e.msg.Header = nats.Header{
		HeaderID: e.id, HeaderSeq: e.seq, HeaderPartition: e.part, HeaderKey: e.key, headerExpectedStream: {stream},
	}
	return e
}

// problem is why a message cannot be sent.
type problem struct {
	*Error
	// ofStream is set if the stream's settings are the reason: what is known of them may be old.
	ofStream bool
}

// encode makes m the encoder's message, or says why it cannot be one.
func (e *encoder) encode(m *Message) *problem {
	if m.Topic != e.lastTopic || m.Topic == "" {
		if err := ValidateTopic(m.Topic); err != nil {
			return &problem{Error: refused(ReasonBadSubject, true, "topic: %w", err)}
		}
		if !e.info.has(m.Topic) {
			return &problem{refused(ReasonWrongStream, false, "topic: the stream does not have %s", quote(m.Topic)), true}
		}
		e.lastTopic = m.Topic
	}
	for _, name := range e.rowNames {
		delete(e.msg.Header, name)
	}
	e.rowNames = e.rowNames[:0]

	e.id[0] = EncodeID(m.ID)
	e.seq[0] = strconv.FormatInt(m.Seq, 10)
	e.key[0] = EncodeKey(m.Key)
	if m.Partition != e.partition {
		e.part[0], e.partition = strconv.Itoa(m.Partition), m.Partition
	}
	delete(e.msg.Header, headerContentType)
	if m.ContentType != "" {
		if err := checkValue(m.ContentType); err != nil {
			return &problem{Error: refused(ReasonBadHeaders, true, "content_type: %w", err)}
		}
		e.contentType[0] = trimValue(m.ContentType)
		e.msg.Header[headerContentType] = e.contentType
	}
	if err := e.addRow(m); err != nil {
		return &problem{Error: err}
	}
	e.msg.Subject, e.msg.Data = m.Topic, m.Data
	return e.checkSize(m)
}

func (e *encoder) addRow(m *Message) *Error {
	if len(m.Headers) == 0 {
		return nil
	}
	return eachHeader(m.Headers, func(name, value string) *Error {
		if m.ContentType != "" && strings.EqualFold(name, headerContentType) {
			return nil
		}
		e.msg.Header[name] = []string{value}
		e.rowNames = append(e.rowNames, name)
		return nil
	})
}

func (e *encoder) checkSize(m *Message) *problem {
	e.size = headerStart
	for name, values := range e.msg.Header {
		e.size += len(name) + len(values[0]) + headerExtra
	}
	total := e.size + max(len(e.msg.Data), int(m.TooLarge))
	switch {
	case e.size > maxHeaders:
		return &problem{Error: refused(ReasonTooLarge, true, "headers: %d bytes, more than %d", e.size, maxHeaders)}
	case total > e.maxPayload:
		return &problem{Error: refused(ReasonTooLarge, true, "payload: %d bytes with headers, more than the server's %d", total, e.maxPayload)}
	case e.info.maxMsgSize >= 0 && total > e.info.maxMsgSize:
		return &problem{refused(ReasonTooLarge, true, "payload: %d bytes with headers, more than the stream's %d", total, e.info.maxMsgSize), true}
	case m.TooLarge > 0:
		return &problem{Error: outage(ReasonBusy, errors.New("the server takes larger messages now: this one is read again"))}
	}
	return nil
}

// eachHeader calls add for each member of the JSON object in text.
func eachHeader(text []byte, add func(name, value string) *Error) *Error {
	if !json.Valid(text) {
		return refused(ReasonBadHeaders, true, "headers: not JSON")
	}
	// The text is valid, so that only what it is about is left to look at.
	s := scanner{text: text}
	switch s.next() {
	case 'n':
		return nil
	case '{':
	default:
		return refused(ReasonBadHeaders, true, "headers: not a JSON object")
	}
	s.pos++
	for s.next() != '}' {
		if s.text[s.pos] == ',' {
			s.pos++
			s.next()
		}
		name := s.str()
		s.next()
		s.pos++ // the colon
		if err := checkName(name); err != nil {
			return err
		}
		var value string
		switch s.next() {
		case '"':
			value = trimValue(s.str())
			if err := checkValue(value); err != nil {
				return refused(ReasonBadHeaders, true, "headers: %s: %w", quote(name), err)
			}
		case '{', '[', 'n':
			return refused(ReasonBadHeaders, true, "headers: %s: the value is no string, number or boolean", quote(name))
		default:
			value = s.literal()
		}
		if err := add(name, value); err != nil {
			return err
		}
	}
	return nil
}

// scanner walks over valid JSON.
type scanner struct {
	text []byte
	pos  int
}

// next moves to the next byte that is no space, and returns it.
func (s *scanner) next() byte {
	for s.text[s.pos] == ' ' || s.text[s.pos] == '\n' || s.text[s.pos] == '\t' || s.text[s.pos] == '\r' {
		s.pos++
	}
	return s.text[s.pos]
}

// str reads the string at pos.
func (s *scanner) str() string {
	start, escaped := s.pos, false
	for s.pos++; s.text[s.pos] != '"'; s.pos++ {
		if s.text[s.pos] == '\\' {
			escaped = true
			s.pos++
		}
	}
	s.pos++
	if !escaped {
		return string(s.text[start+1 : s.pos-1])
	}
	var value string
	_ = json.Unmarshal(s.text[start:s.pos], &value) // valid, as the whole text is
	return value
}

// literal reads the number or word at pos.
func (s *scanner) literal() string {
	start := s.pos
	for strings.IndexByte(",} \n\t\r", s.text[s.pos]) < 0 {
		s.pos++
	}
	return string(s.text[start:s.pos])
}

// notInNames are the printable characters that a header's name may not have.
const notInNames = "\"()/,:;<=>?@[\\]{}"

func checkName(name string) *Error {
	bad := name == ""
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(notInNames, c) >= 0 {
			bad = true
		}
	}
	if bad {
		return refused(ReasonBadHeaders, true, "headers: %s is no name for a header", quote(name))
	}
	for _, prefix := range []string{"nats-", "outlane-"} {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return refused(ReasonReservedHeader, true, "headers: %s is reserved", quote(name))
		}
	}
	return nil
}

var errLineEnd = errors.New("the value has a line end or a NUL")

func checkValue(value string) error {
	if strings.ContainsAny(value, "\r\n\x00") {
		return errLineEnd
	}
	return nil
}

// trimValue takes off what the client would take off anyway; receivers never see it.
func trimValue(value string) string { return strings.Trim(value, " \t") }
