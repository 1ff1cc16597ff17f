// Package history judges a delivery after the fact: it is given the events
// that were inserted and the messages that were stored, and says which events
// are lost, doubled, out of order or unmarked, and which messages nobody
// inserted. `outlane verify`, the demo and the stress tests all use it.
//
// # What it takes for the promise
//
// Event a must be stored before event b when a had committed before b was
// inserted, which is a.Xact < b.XactOldest, and both belong to one lane. The
// same holds for two events of one key in one stream, whatever their
// partitions. Events of one transaction become visible together, so they must
// be stored in the order of their seq. Events of transactions that overlapped
// may be stored either way. On routes with order by sequence (Event.Strict)
// nothing but the seq counts.
//
// Three things loosen that, and no others:
//
//   - An event with a dead letter or parked entry is stored later than its
//     neighbours by design, so it neither breaks the order of its lane nor
//     sets it. If the entry blocks its key, the order of the key still holds,
//     and those that one decision released must follow each other by seq. A
//     dead letter that blocks nothing is out of the order of its key as well.
//   - Transaction ids of another cluster (a restored dump) cannot be compared
//     with today's. Where the ids go backwards while seq goes up, the checker
//     begins a new era and compares nothing across it.
//   - After a change of the number of partitions, lanes are compared from the
//     last message on that provably belongs to the old number. Keys are
//     compared throughout.
//
// The verdict is exact for what it is given: there are no false reports if the
// input is true. It does no input or output of its own, reads no clock, and
// holds about 90 bytes an event, so ten million fit in one gigabyte.
//
// A Checker is for one goroutine: first every Add, in the order of seq, then
// every Store, in the order of each stream, then Report.
package history
