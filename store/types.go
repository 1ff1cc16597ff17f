package store

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Lane is the unit of order: the events of one partition that go to one stream. Stream is "" for events that were inserted without a stream
// while no route gave them one.
type Lane struct {
	Stream    string
	Partition int
}

// LaneKey is a partition key within a lane.
type LaneKey struct {
	Lane
	Key string
}

// Event is a row of outbox_events.
type Event struct {
	ID        string
	Seq       int64
	Stream    string
	Topic     string
	Key       string
	Partition int    // -1: somebody else's row, or one that needs nothing; then only Seq and Xact are set
	Xact      uint64 // the transaction that inserted the row; only Arrivals tells

	Payload     []byte // the JSON text as Postgres prints it, or the bytes of payload_bytes; nil if the row has neither
	Binary      bool   // Payload is from payload_bytes
	ContentType string
	Headers     []byte    // a JSON text, nil if there are none
	CreatedAt   time.Time // zero if the row has none, or one outside the years 1 to 9999
	Attempts    int
	Place       Place // where the row was read
	Omitted     bool  // Payload and Headers were left out because they are large; Fetch brings them, if not TooLarge
	TooLarge    int64 // not 0: not even Fetch brought them, because they have at least so many bytes: see Config.LargestBody
}

// Poll is what one look at the database says about what is new. Poll.LastSeq was read before the snapshot was taken.
//
// A transaction has its id before it takes a number. So whoever took a number at or under LastSeq and was open at the snapshot is in
// InProgress, and once none of InProgress is open any more, no number at or under LastSeq can still appear.
type Poll struct {
	LastSeq int64 // the last number that the sequence gave; 0 if it never gave one

	Xmin       uint64   // every transaction before it had ended
	Xmax       uint64   // no transaction from it on had ended
	InProgress []uint64 // ascending: every transaction with an id at that moment that had not ended, also those from Xmax on

	Started  time.Time // when the server was started or, since 15, recovered from a crash; another value: another server, or sequence values may be lost
	ReadOnly bool      // the server refuses writes

	// Generation goes up by one with each SequenceReset, by whomever. When it changes, numbers, cursors and the horizon of before mean nothing.
	Generation int64

	// Backwards says that the sequence is behind what was seen of it or is another one than the one that the saved cursors count by (a restore,
	// TRUNCATE … RESTART IDENTITY, setval): the caller must call SequenceReset and start over.
	Backwards bool
}

// Open says whether a transaction had its id at that moment and had not ended.
func (p Poll) Open(xact uint64) bool {
	_, open := slices.BinarySearch(p.InProgress, xact)
	return open
}

// Mark names events of one lane that the stream has acknowledged.
type Mark struct {
	Lane  Lane
	Epoch int64
	IDs   []string

	// Places are those of the events, in the same order; if they are left out, the events are found by their ids alone, which costs more.
	Places []Place
}

// Place is where in the table a row was when it was read.
type Place = pgtype.TID

// Claim is what the new owner of a partition starts from.
type Claim struct {
	Partition  int
	Epoch      int64
	Lanes      []LaneCursor
	ParkedKeys []LaneKey // keys with an open dead letter that blocks them, or with events that are parked
}

// LaneCursor is what was saved of a lane. Every row at or under Cursor is settled.
type LaneCursor struct {
	Lane
	Cursor    int64
	StreamSeq int64 // the last stream sequence that is known to be the lane's; 0 if none
}

// CursorSave asks to save a lane's cursor.
type CursorSave struct {
	Lane      Lane
	Epoch     int64
	Cursor    int64
	StreamSeq int64
}

// DeadLetter is an event that its owner gives up on.
type DeadLetter struct {
	Event    Event
	Epoch    int64
	Reason   string // a short stable code
	Error    string // for people
	Attempts int
	Block    bool // later events of the key wait until a person decides
}

// DeadLetterEntry is a row of the dead-letter list.
type DeadLetterEntry struct {
	EventID    string
	Seq        int64
	Lane       Lane
	Key        string
	Topic      string
	Reason     string
	Error      string
	Attempts   int
	Blocks     bool
	CreatedAt  time.Time
	ResolvedAt time.Time // zero while it is open
	Resolution string    // "", "retried" or "skipped"
	Parked     int64     // events that wait behind it
}

// DeadLetterFilter narrows ListDeadLetters. Empty fields do not.
type DeadLetterFilter struct {
	EventID   string
	Stream    *string
	Partition *int
	Topic     string
	Key       *string
	Resolved  bool // list resolved entries as well
	Blocking  bool // list only those behind which events of their key are parked
	Limit     int  // 0: 1000

	// To go on after a full page: its last entry.
	AfterSeq int64
	AfterID  string
}

// LaneLag is how far a lane is behind.
type LaneLag struct {
	Lane            Lane
	Events          int64 // not processed, above the saved cursor, neither dead nor parked
	AtLeast         bool  // Events stopped at the cap: there are more
	OldestSeq       int64 // of the waiting event with the lowest seq; 0 if none waits
	OldestCreatedAt time.Time
	OldestAge       time.Duration // by the database's clock, at the same moment; never negative
	DeadLetters     int64         // open ones
	Parked          int64
}

// LaneState is why a lane does not flow, as its owner sees it, for people to read.
type LaneState struct {
	Lane   Lane
	Member string
	Epoch  int64  // under which the owner says so; nothing is written for another
	Reason string // "": it flows
	Detail string
	Since  time.Time
}

// Route gives a stream to events that are inserted without one.
type Route struct {
	Topic  string // a NATS subject, wildcards allowed
	Stream string
}

// Meta is what a worker must know about the database before it starts.
type Meta struct {
	SchemaVersion int64
	WantVersion   int64
	Partitions    int
	KeyField      string
	SequenceCache int64 // above 1 the horizon cannot be known: cursors stand still
	Sessions      bool  // false behind a transaction pooler
	ServerVersion int   // as server_version_num: 150004
}
