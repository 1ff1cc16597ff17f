// Package chaos runs a pool of worker processes between a private Postgres and three NATS servers, breaks whatever it can while events flow,
// heals, drains, and checks every event. `make chaos` and `make soak` are wrappers around Run and Soak.
//
// # What it promises
//
//   - Everything that is decided is decided by the seed, before the run begins: how the pool is set up, what the producers insert, and the plan,
//     which says what breaks when, for how long, and where. The same seed has the same plan. What the plan meets is up to the machine.
//   - Run returns nil only if every committed event is in its stream once and in order, or is a dead letter that was poisoned, no rolled back
//     event is anywhere, and no worker ended otherwise than told. Besides what package verify finds in table and streams, the producers' own
//     memory is asked: what they were told was committed or rolled back, and in which order.
//   - At most one NATS server is away at a time, but for moments when all are, stopped in order: what a stream acknowledged and then lost
//     because a majority of its servers was killed would be no fault of Outlane's.
//   - All ids stay inside the streams' duplicate windows, so nothing may be stored twice at all.
//   - When something is wrong, the folder with logs, the plan and the data stays. Otherwise nothing is left.
//
// # What it does not promise
//
// That a fault did what it is for: one that could not be done (a lock that was not granted, a server that was away) is logged as such.
package chaos
