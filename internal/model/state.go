package model

import (
	"math/bits"
	"slices"
)

// What a State has room for.
const (
	maxMembers    = 3
	maxPartitions = 2
	maxEvents     = 4
	maxLate       = 2
)

// Config is one world to explore.
type Config struct {
	Members    int // 1 to 3
	Partitions int // 1 or 2
	Events     int // of each partition, 1 to 4: one lane, one key, numbered in the order of seq
	Faults     int // how many faults a run may have

	Late     int  // the event whose transaction commits last; 0: all are there at once
	Refused  int  // the event that the stream refuses while it refuses; 0: none
	Blocking Set  // the events whose route blocks their key when they become dead letters
	Window   bool // the duplicate window may pass, which counts as a fault

	Slow    bool // statements may be under way for any time: otherwise marks and saves are one step each
	Batches int  // how many batches that nobody waits for any more may still be on their way to the stream, at most 2

	Only []Kind // the faults that may happen; empty: all

	// Strict does not excuse what a stale copy of an event does after a person has skipped it.
	Strict bool
	// Bugs are rules that are left out, and Tolerated what is not counted as wrong, to see what harm comes of it.
	Bugs      []Bug
	Tolerated []Fault
}

// Bug is a rule that can be left out, to see that it is missed.
type Bug string

// The rules that can be left out.
const (
	MarkUnchecked       Bug = "marks do not check the epoch"
	DecisionUnchecked   Bug = "dead letters and parked events do not check the epoch"
	CursorUnchecked     Bug = "cursors are saved without a look at the epoch"
	ClaimKeepsEpoch     Bug = "a claim does not raise the epoch"
	NoDeduplication     Bug = "the stream does not know the ids that it has stored"
	CursorPassesUnsent  Bug = "the cursor follows what was read, not what is settled"
	CursorPassesHorizon Bug = "the cursor passes numbers of open transactions"
	BlockUnverified     Bug = "the epoch is not asked for before events that a dead letter may block are sent"
	BlockByOwnRoute     Bug = "that is asked only for events whose own route blocks"
	DeadStay            Bug = "the records of the dead are not removed"
	DoubtGoesOn         Bug = "whoever does not know whether its dead letter was written goes on"
	BatchGoesOn         Bug = "the stream goes on with a batch after a message that it refused"
)

func (c *Config) has(b Bug) bool {
	return slices.Contains(c.Bugs, b)
}

// Set is a set of events, or of members. Both are numbered from 1.
type Set uint8

// SetOf makes a set.
func SetOf(numbers ...int) Set {
	var s Set
	for _, n := range numbers {
		s |= 1 << n
	}
	return s
}

// upto is 1 to n.
func upto(n int) Set { return 1<<(n+1) - 2 }

func (s Set) has(n int) bool { return s>>n&1 == 1 }

// lowest is 0 for the empty set.
func (s Set) lowest() int {
	if s == 0 {
		return 0
	}
	return bits.TrailingZeros8(uint8(s))
}

// State is all there is at one moment. What does not matter any more is zero, so that states which differ in nothing else are the same.
type State struct {
	Joined     Set // members that have a record, the gone one among them
	Faults     uint8
	Partitions [maxPartitions]Partition
}

// Partition is what Postgres, the lease backend, the stream and the members have of one partition.
type Partition struct {
	// The lease. Whether its record is missing or names nobody makes no difference.
	Holder uint8 // a member, the gone one, or 0
	Known  Set   // the members whose slot is by the version that the lease now has

	// Postgres. The epoch itself is not kept: what counts is who has the current one (Owner.Current).
	Committed bool // the late event's transaction
	Cursor    uint8
	Marked    Set
	Dead      Set // open dead letters
	Skipped   Set
	Parked    Set

	// The stream.
	Refusing  bool
	Stream    [maxEvents]uint8 // events in the order in which they were stored first
	Twice     Set              // stored again after the duplicate window
	Forgotten Set              // the duplicate window has passed
	Late      [maxLate]Set     // batches that nobody waits for any more: what of them may still be stored
	LateMarks Set              // in marks that Postgres has begun and nobody waits for any more

	Owners  [maxMembers]Owner
	Excused Set   // events whose place in the order was given up
	Fault   Fault // what a step has done that it must not
}

// Owner is one member's work on one partition.
type Owner struct {
	Slot    Slot
	Phase   Phase
	Current bool // its epoch is the partition's
	Newest  bool // no other claim, and no person's decision, has come after its claim: what Current should mean
	Blocked bool // it knows of a dead letter that blocks the key

	Seen      Set // events that it need not read: settled when it looked, or in its hands since
	Doing     Doing
	Batch     Set   // the events of what it is doing
	Rest      Set   // of a batch that is sent: what the stream has not taken
	Marking   Set   // acknowledged, to be marked
	Statement Set   // in a mark that Postgres has begun: the epoch held when it began
	Save      uint8 // in a save that Postgres has not got: the cursor plus one; 0: there is none
}

// Slot is a partition as the lease manager has it.
type Slot uint8

// The slot's states; see lease/step.go.
const (
	Idle Slot = iota
	Running
	Releasing
	Drained
)

// Phase is a partition as the worker has it. One that is being released is Active, and reads nothing more.
type Phase uint8

// The phases; see worker/ownership.go and worker/pool.go.
const (
	None     Phase = iota
	Claiming       // the claim is on its way to Postgres
	Claimed        // Postgres has answered, no lane is started
	Active
)

// Doing is what a lane's publisher does.
type Doing uint8

// What a publisher can be doing; see worker/publish.go.
const (
	Nothing  Doing = iota
	Sending        // the batch is sent, or some of it; the stream takes it message by message
	GivingUp       // the dead letter is on its way to Postgres
	Parking        // the parked events are on their way to Postgres
)

// gone is the number of all members that are no more, and of all that never were.
func (c *Config) gone() int { return c.Members + 1 }

func (c *Config) first() State {
	s := State{Faults: uint8(c.Faults)}
	for p := range c.Partitions {
		s.Partitions[p].Refusing = c.Refused > 0
	}
	return s
}

// visible are the events that a snapshot shows.
func (c *Config) visible(p *Partition) Set {
	all := upto(c.Events)
	if c.Late > 0 && !p.Committed {
		all &^= SetOf(c.Late)
	}
	return all
}

// horizon is the highest number at or under which no row can appear any more.
func (c *Config) horizon(p *Partition) int {
	if c.Late > 0 && !p.Committed {
		return c.Late - 1
	}
	return c.Events
}

// settled are the events that a fetch leaves out.
func (q *Partition) settled() Set { return q.Marked | q.Dead | q.Skipped | q.Parked }

// stored are the events that the stream has.
func (q *Partition) stored() Set {
	var s Set
	for _, e := range q.Stream {
		s |= SetOf(int(e))
	}
	return s &^ 1
}

// quiet says whether nothing of o is under way.
func (o *Owner) quiet() bool { return o.Doing == Nothing && o.Marking == 0 && o.Statement == 0 }

// stop ends m's work on q, whatever was under way. What it had sent to the stream may still be stored, and a mark that Postgres has begun may
// still take effect. What it had on the way to Postgres may take effect too if nobody has claimed the partition since, but then it might as well have
// done so before; if somebody has, it is refused.
func (q *Partition) stop(cfg *Config, m int) {
	o := &q.Owners[m-1]
	if o.Doing == Sending {
		q.leave(cfg, o.Rest)
	}
	q.LateMarks |= o.Statement
	*o = Owner{Slot: o.Slot}
}

// lost is stop where the owner finds that its lease is another's. A claim on its way goes on.
func (q *Partition) lost(cfg *Config, m int) {
	if q.Owners[m-1].Phase == Active {
		q.stop(cfg, m)
	}
}
