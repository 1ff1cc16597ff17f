package history

import "time"

// Event is one row of the outbox, as the checker needs it.
type Event struct {
	ID  string
	Seq int64
	// Stream is the row's own stream column; it may be empty.
	Stream string
	// Target is the stream the event belongs in: Stream, or for a row without one, what its topic gives. While it is empty, the order of
	// the event is not judged.
	Target    string
	Partition int
	Key       string
	// Xact is the transaction that inserted the event, XactOldest the oldest transaction that was open at that moment.
	Xact, XactOldest uint64
	// Processed tells whether the row was marked. It must have been read before the end of the stream was.
	Processed bool
	// RolledBack marks an event that must never be stored. Only a test knows of such events.
	RolledBack bool
	// Strict marks an event of a route with order by sequence.
	Strict bool
	DeadLetter
	Parked
	// Release is any number that all events share which one operator's decision let go, such as the time of the decision; 0 for none.
	Release int64
}

// DeadLetter is what the dead-letter list says of an event.
type DeadLetter int

// An event is not in the list, waits there for a decision, was sent on its way again, or was given up.
const (
	NoDeadLetter DeadLetter = iota
	OpenDeadLetter
	RetriedDeadLetter
	SkippedDeadLetter
)

// Parked is what the list of parked events says of an event.
type Parked int

// An event never waited behind a dead letter of its key, or it waits, or it was released. A dead letter that blocks its key counts as
// parked as well: Released once it was retried.
const (
	NeverParked Parked = iota
	StillParked
	Released
)

// Message is one stored message that Outlane published.
type Message struct {
	Stream    string
	StreamSeq uint64
	// ID, Seq and Partition are what its headers say.
	ID        string
	Seq       int64
	Partition int
	Time      time.Time
}

// Kind is a kind of fault.
type Kind string

// The kinds of fault.
const (
	// Lost: the row is marked, the stream has no such message.
	Lost Kind = "lost"
	// Phantom: a message that no committed event stands for.
	Phantom Kind = "phantom"
	// Doubled: stored again after its first copy.
	Doubled Kind = "doubled"
	// OutOfOrder: stored after an event that it had to precede.
	OutOfOrder Kind = "out_of_order"
	// Unmarked: stored, and its row is not marked.
	Unmarked Kind = "unmarked"
)

// Fault is one event or message that breaks a promise.
type Fault struct {
	Kind Kind `json:"kind"`
	// ID is empty for a lost event: only its Seq is kept.
	ID        string `json:"id,omitempty"`
	Seq       int64  `json:"seq"`
	Stream    string `json:"stream"`
	Partition int    `json:"partition"`
	// StreamSeq is the place in the stream, 0 for a lost event.
	StreamSeq uint64 `json:"stream_seq,omitempty"`
	Reason    string `json:"reason"`
	// ByKey marks an event that is out of the order of its key, not only of its lane.
	ByKey bool `json:"by_key,omitempty"`
	// Listed tells that the event had an entry in the dead-letter or parked list when it was added.
	Listed bool `json:"-"`
}

// Trim says what a stream has dropped by itself.
type Trim int

// What a stream may have dropped.
const (
	// Whole: every message ever stored is still there.
	Whole Trim = iota
	// Head: messages were dropped from the beginning, in their order.
	Head
	// Sparse: any message may have been dropped.
	Sparse
)

// Report holds the counts of a finished check.
type Report struct {
	// Checked counts the events that were compared: stored, lost, or in the dead-letter or parked list.
	Checked int64
	Stored  int64
	Lost    int64
	Phantom int64
	// Doubled counts copies beyond the first.
	Doubled int64
	// OutOfOrder counts events; OutOfOrderKey those of them that broke the order of their own key, not only of their lane.
	OutOfOrder, OutOfOrderKey int64
	Unmarked                  int64
	// Waiting counts events that are neither stored nor settled, DeadLetters those whose entry is open, Skipped those given up by
	// a person, StillParked those that wait behind a dead letter.
	Waiting, DeadLetters, Skipped, StillParked int64
	// Expired counts marked events of trimmed streams of which nobody can tell any more whether they were stored.
	Expired int64
	// Newer counts messages of events beyond Options.Newest.
	Newer int64
	// Misplaced counts messages in another stream than their event's Target.
	Misplaced int64
	// Breaks counts places where the transaction ids or the sequence went backwards; order across them is not judged.
	Breaks int64
	// Faults holds the first faults of each kind.
	Faults []Fault
}

// Clean tells whether no fault was found.
func (r Report) Clean() bool {
	return r.Lost == 0 && r.Phantom == 0 && r.Doubled == 0 && r.OutOfOrder == 0 && r.Unmarked == 0
}
