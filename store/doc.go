// Package store holds every SQL statement of Outlane: what the worker, the operator's commands and the lease backend ask of Postgres.
//
// # What it promises
//
//   - Each method is one statement, or one batch of statements in one round trip and one transaction: a process that is stopped in the middle
//     of a call never leaves a lock behind. (RetryDeadLetter and SkipDeadLetter, which people call, are transactions of a few round trips.)
//   - What decides about events (Mark, DeadLetter, Park, Attempt, SaveCursors) carries the epoch that its caller claimed, and changes nothing
//     if the epoch has moved on. Decisions hold the partition's row against a concurrent Claim while they are written.
//   - Every call has a deadline, also without one in its context, and no call outlives its context: Config.StatementTimeout, five seconds for
//     Poll, five minutes for a person's decision.
//   - The plans of the hot statements do not depend on the table's statistics; tests assert them by EXPLAIN.
//   - It never talks to a server that is read-only for longer than one call: such connections are dropped, so that an address list or a name
//     leads to the new primary after a failover.
//   - It works through a pooler in transaction mode (pgbouncer), which it finds out by itself. Only Listen needs a session of its own.
//
// # What it does not promise
//
//   - It retries nothing. A call that failed may have taken effect, as when the answer was lost; every method may be called again.
//   - Mark is fenced by a read, not by a lock: a mark that races with a claim may land after it. What is marked was acknowledged by the
//     stream, so it is true whoever says it.
//
// # Who may call it
//
// Everything on Store is safe for concurrent use, at any time after Open. Names of tables and functions are always written with their schema,
// so search_path does not matter. Nothing here creates or changes the schema: see package migrations.
package store
