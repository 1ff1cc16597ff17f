// Package leasetest is the contract that a backend of package lease must fulfil, as tests, and what such tests need: a pool in memory, a
// way to a backend that can be broken, and a worker that records what its manager tells it.
//
// A backend's test calls Run with a function that makes a new, empty pool. Run tests the backend's methods alone, and then whole pools of
// managers on it. It runs in real time, with members of short durations, and waits for conditions; it asserts no durations.
package leasetest

import (
	"testing"
	"time"

	"github.com/outlane/outlane/lease"
)

// Ceiling bounds every wait. It is generous: a loaded machine is no failure.
const Ceiling = time.Minute

// Partitions is the number of partitions that a pool under test must have room for.
const Partitions = 16

// Pool is the records of one pool under test, as a person with access to them can see and edit them.
type Pool interface {
	// Backend returns a further backend on the records, for one member.
	Backend(t testing.TB) lease.Backend

	// Members and Leases return the records, sorted.
	Members(t testing.TB) []lease.Member
	Leases(t testing.TB) []lease.Lease

	// SetHolder writes a holder into a lease, without regard to versions.
	SetHolder(t testing.TB, partition int, holder string)

	// Disturb changes what else there is in a lease, its count of transitions say, to something odd.
	Disturb(t testing.TB, partition int)

	// DeleteLease deletes a lease.
	DeleteLease(t testing.TB, partition int)

	// SetDuration edits the duration in a member's record.
	SetDuration(t testing.TB, id string, d time.Duration)
}

// Case is one test of the contract.
type Case struct {
	Name string
	Test func(t *testing.T, pool Pool)
}

// Run runs all cases, each on a pool of its own.
func Run(t *testing.T, newPool func(t *testing.T) Pool) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Test(t, newPool(t))
		})
	}
}
