package outbox

import (
	"encoding/json"
	"time"
)

// Event is one event to publish. Only Topic is always needed.
type Event struct {
	// ID names the event for ever: it becomes Nats-Msg-Id, by which the stream drops a second copy. Empty: a new UUID of version 7.
	// At most 255 bytes.
	ID string

	// Stream is the JetStream stream that stores the event. Empty: the routes of the installation decide by the topic.
	Stream string

	// Topic is the NATS subject that the event is published to, such as "payout.generated". At most 1,024 bytes.
	Topic string

	// Key is the partition key, whose events keep their order: a team id, say. Empty: the configured field of the JSON payload
	// (team_id unless configured otherwise), and without that field the stream's name, which means order per stream.
	Key string

	// Payload is the body as JSON: a json.RawMessage is taken as it is, every other value goes through json.Marshal. Postgres keeps it as
	// jsonb, so spaces, the order of fields and repeated fields are lost; numbers keep all their digits. A plain []byte is refused, because
	// it could mean either: use json.RawMessage, or Bytes.
	Payload any

	// Bytes is the body as it is, for protobuf and the like, instead of Payload. Set ContentType and Key with it: nothing looks inside.
	Bytes []byte

	// ContentType becomes the Content-Type header, such as "application/x-protobuf". Empty: no such header.
	ContentType string

	// Headers become headers of the message: traceparent, for instance. Names that begin with Nats- or Outlane- are refused.
	Headers map[string]string

	// CreatedAt is when the event happened. Zero: the start of the transaction, or the present moment in EnqueueCopy.
	CreatedAt time.Time
}

// record is an event made ready for the database.
type record struct {
	Event
	payload json.RawMessage // nil without a JSON payload
	headers json.RawMessage // nil without headers
}
