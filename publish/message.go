package publish

// Message is one event on its way to a stream.
type Message struct {
	ID          string // becomes Nats-Msg-Id, see EncodeID: a resend with the same id is stored once
	Topic       string // the NATS subject, at most 2,048 bytes
	Key         string // the partition key; becomes Outlane-Key, see EncodeKey
	Seq         int64  // the event's place in the outbox; becomes Outlane-Seq
	Partition   int    // becomes Outlane-Partition
	Headers     []byte // the row's own headers: the text of a JSON object whose values are strings, numbers or booleans; nil or null is none
	ContentType string // becomes Content-Type, unless empty; it wins over one in Headers
	Data        []byte // sent as it is
	TooLarge    int64  // not 0: Data was left out because it has at least so many bytes, more than MaxPayload
}

// Result says how far a Publish came.
type Result struct {
	Stored    int    // messages[:Stored] are in the stream, now or since an earlier call
	StreamSeq uint64 // the last stream sequence that an answer named, 0 if none did
	Err       *Error // about messages[Stored]; nil if and only if Stored == len(messages)
}

// Names of the headers that every stored event carries, besides Nats-Expected-Stream.
const (
	HeaderID        = "Nats-Msg-Id"
	HeaderSeq       = "Outlane-Seq"
	HeaderPartition = "Outlane-Partition"
	HeaderKey       = "Outlane-Key"
)
