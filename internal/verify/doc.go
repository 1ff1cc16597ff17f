// Package verify compares the outbox table with the streams, while the pool
// runs or stands, and reports what breaks Outlane's promises: events that are
// lost (not stored, and marked or passed by their lane's cursor), doubled, out
// of order or unmarked (stored, not marked). `outlane verify` and the demo are
// wrappers around Run.
//
// # What it promises
//
// It reports no fault that is none, whatever goes on at the same time. The
// table is read first, each stream up to the end that it has after that: a
// row that was marked by then has its message under that end. Rows that change
// while Run looks are looked at again before they are reported: an unmarked
// event gets Options.Settle to be marked in. What is newer than the check is
// counted as in flight, and left to the next check.
//
// It changes nothing. On streams with limits retention it makes a consumer
// that the server removes by itself; from work queues and interest streams it
// reads message by message, which disturbs no consumer.
//
// # What it does not promise
//
// What a stream has dropped (age, size, acknowledged work) is gone: of such
// events Run tells what can still be told, counts the others as expired and
// says so in a note. A message without a row was archived, or comes from
// somewhere else, or from a transaction that was rolled back: Run cannot tell
// which, so it counts them and calls them a fault only if Options.Complete
// says that no row was ever deleted. Events inserted without a stream are
// looked for in the stream that has their topic now.
//
// It holds about 90 bytes of memory for each event of the table that is
// checked. Order is judged by the rules of package history.
package verify
