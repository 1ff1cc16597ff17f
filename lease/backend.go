package lease

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrGone is returned by Backend.Renew if the member has no record.
	ErrGone = errors.New("member has no record")

	// ErrRenewed is returned by Backend.Bury if the member's record is no longer as it was seen.
	ErrRenewed = errors.New("member was renewed")
)

// Member is the record of a member.
type Member struct {
	// ID is unique per process start. IDs are compared whole and as bytes.
	ID string

	// Duration is how long the member may go without renewing before others may declare it dead. In a record that somebody edited it can be
	// anything.
	Duration time.Duration

	// Leaving is set while the member hands over what it has: it is alive, and is to be given nothing more.
	Leaving bool

	// Weights says how much work its partitions are, in a text that a Backend only keeps; "" if the member does not say. In a record that
	// somebody edited it can be anything.
	Weights string

	// Renewal differs after each renewal. Backends choose it; it is compared for equality and nothing else. Join and Renew ignore it.
	Renewal string
}

// Lease is the record of a partition.
type Lease struct {
	Partition int

	// Holder is the ID of a member, or "" for none. In a record that somebody edited it can be anything.
	Holder string

	// Version differs after each Swap, like the resource version of a Kubernetes object. It is compared for equality and nothing else.
	// After an edit by hand the version, the holder, or both differ. A partition that has no record has Version "".
	Version string
}

// Swap makes To the holder of a lease, on condition that the lease still is as it was seen. If the partition was seen to have no record
// (its version is ""), the record is created, on condition that there is still none. To may be "", which sets the partition free.
type Swap struct {
	Lease Lease
	To    string
}

// Update is what the backend holds at some moment.
type Update struct {
	// Members are all members, in any order. Nil means that they are as in the update before.
	Members []Member

	// Leases are all leases that have a record, in any order. Nil means that they are as in the update before.
	Leases []Lease
}

// Backend keeps the records of one pool. One Backend value serves one Manager.
//
// All methods may be called concurrently, and must return soon after their context has ended. An error other than ErrGone and ErrRenewed
// says nothing about whether the call took effect; the manager finds that out by watching.
type Backend interface {
	// Join creates the member's record, or replaces it.
	Join(ctx context.Context, member Member) error

	// Renew changes the renewal of the member's record, and sets Duration, Leaving and Weights. It returns ErrGone if there is no record, and then
	// creates none.
	Renew(ctx context.Context, member Member) error

	// Leave removes the record of a member. It is no error if there is none.
	Leave(ctx context.Context, id string) error

	// Bury removes the record of a member on condition that its renewal is still the one given; otherwise it returns ErrRenewed. It is
	// no error if there is no record.
	Bury(ctx context.Context, member Member) error

	// Swap attempts each of the swaps, in as few writes as the backend can, and returns the partitions of those that took effect. A swap
	// whose condition does not hold is no error. With an error, the partitions returned took effect; nothing is known of the others.
	Swap(ctx context.Context, swaps []Swap) ([]int, error)

	// Watch calls see with the whole state at once, then after each change as soon as it knows of it (changes may be merged), and in any
	// case at least as often as every says, with an empty Update if nothing changed. It calls see from one goroutine, never with a state
	// older than one it gave before.
	//
	// Each call is evidence: it says that the view was current a moment ago. A backend that does not know its view to be current must not call
	// see. Members are declared dead on that evidence.
	//
	// Watch returns when ctx ends or when it cannot go on; the manager then calls it again after a pause.
	Watch(ctx context.Context, every time.Duration, see func(Update)) error
}
