// Package outbox puts events into the outbox table, inside the transaction of the business change that they tell about. It is what a Go
// service imports; it needs no worker, no NATS connection, and a database role that may INSERT into outbox_events and nothing else.
//
//	tx, err := pool.Begin(ctx)
//	...
//	err = outbox.Enqueue(ctx, tx, outbox.Event{
//		Stream:  "STREAM_PAYOUT",
//		Topic:   "payout.generated",
//		Key:     payout.TeamID,
//		Payload: payout,
//	})
//	...
//	err = tx.Commit(ctx)
//
// What it promises: the events exist if and only if the transaction commits. One call is one statement, however many events it has, and
// gives them sequence numbers in the order of the arguments. Every event is validated before anything is sent, so an error that is a
// *ValidationError has changed nothing and leaves the transaction usable; after any other error the transaction must be rolled back.
// An event that passed is one that the worker can publish: its topic, headers and size are within what NATS takes.
//
// What it does not promise: that the event's stream exists, or has the topic (the worker waits for it and says so). An id that is already
// in the table is an error of the database, not an update.
//
// Enqueue takes a pgx transaction, EnqueueSQL anything that has database/sql's ExecContext, EnqueueCopy a pgx transaction and a long
// sequence of events. An Outbox may be used by many goroutines at once; the functions of the package use one with the default options.
//
// Through a pooler in transaction mode, pgx must not use named prepared statements: set default_query_exec_mode=exec (or simple_protocol)
// in the connection string, as for all other statements of the service.
package outbox
