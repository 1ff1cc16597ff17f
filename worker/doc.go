// Package worker is the pool's engine: it owns the partitions its leases give it and moves their events from the outbox to the streams.
//
// # What it promises
//
//   - Order. Within a lane, events are sent in the order in which they became visible, and in seq order among those that became visible
//     together. So an event that was committed before another transaction inserted its own is stored before it, if both are in one lane.
//     On lanes with order "sequence" it is seq order without exception, at the price of waiting for the oldest open write transaction.
//   - No loss. A row counts as settled only after the stream acknowledged it, or after a decision about it (dead letter, parked) was
//     committed. A cursor never passes a row that is not settled, nor a number that an open transaction may still fill.
//   - One lane has one publish under way at a time. Lanes do not wait for each other, streams neither.
//   - What the stream acknowledged is marked, however often marking fails; it is not published again meanwhile.
//   - Outages of Postgres, NATS or the lease backend end nothing: the worker says so in Ready and goes on by itself afterwards.
//
// # What it does not promise
//
//   - That nobody else believes to own the same partition. A lease is a hint; the epoch in Postgres is the fence. A worker whose epoch was
//     passed stops the partition at its next statement; until then it may send again what its successor sends as well, in the same order and
//     under the same ids, which the stream drops inside its duplicate window.
//   - That an event is stored once when it is sent again after the stream's duplicate window.
//
// # Who may call what
//
// New, then Run once. Ready, Handler and Describe may be called at any time, from any goroutine.
package worker
