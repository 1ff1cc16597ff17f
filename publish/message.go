package publish

// Message is one event on its way to a stream.
type Message struct {
	ID          string // becomes Nats-Msg-Id: a resend with the same id is stored once
	Topic       string // the NATS subject
	Key         string // the partition key, any bytes; becomes Outlane-Key, see EncodeKey
	Seq         int64  // the event's place in the outbox; becomes Outlane-Seq
	Partition   int    // becomes Outlane-Partition
	Headers     []byte // the row's own headers: the text of a JSON object, or nil
	ContentType string // becomes Content-Type, unless empty
	Data        []byte // sent as it is
}

// Result says how far a Publish came.
type Result struct {
	Stored    int    // messages[:Stored] are in the stream, now or since an earlier call
	StreamSeq uint64 // the last stream sequence that an answer named, 0 if none did
	Err       *Error // about messages[Stored]; nil if and only if Stored == len(messages)
}

// Names of the headers that every stored event carries besides Nats-Msg-Id and Nats-Expected-Stream.
const (
	HeaderSeq       = "Outlane-Seq"
	HeaderPartition = "Outlane-Partition"
	HeaderKey       = "Outlane-Key"
)
