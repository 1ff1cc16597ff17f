// Package publish stores outbox events in JetStream streams, in order.
//
// # Promised
//
// Publish takes the messages of one lane and answers with a Result that is never optimistic: messages[:Stored] are in the stream, each once
// (inside the stream's duplicate window), in the order given, and nothing after messages[Stored] was stored before it by this call. If
// Stored is less than len(messages), Result.Err says what is wrong with messages[Stored] and of which Kind it is. A caller that sends again
// from messages[Stored] keeps the order: what was stored without an answer is recognised by its id.
//
// An Outage says nothing about the event: the same call succeeds later, whatever time that takes. A Refused error is about that one event.
// Events are looked at before anything is sent, so that one that can never be stored does not disturb its neighbours.
//
// A Broker connects by itself, for ever, and reads its credentials again at every attempt. No error, log line or state text of this package
// holds a password, a token, a key or a payload.
//
// # Not promised
//
// Two calls at the same time for the same lane have no order between them. Outside the duplicate window a resend is stored again. A call that
// failed with an outage may have stored more than Stored says: after a lost connection or a timeout a fast call claims nothing, because what
// the server says on the way also counts ids that are only in flight. Lanes of one stream share what the stream can take.
//
// A topic must be one of the stream's subjects as it is; an account's subject mappings are not looked through. Spaces around a header's value
// are not kept. Who listens to the topics without JetStream gets resends too, and now and then an empty message that asks a stream how far it is.
//
// # Who may call what, when
//
// All methods of Broker may be called by any goroutine at any time, also while there is no server; Publish by one goroutine per lane.
// This package knows nothing of SQL, of partitions' owners or of retries: it is asked, and answers once.
//
// The NATS user needs to publish to the topics, to $JS.API.STREAM.INFO.* and $JS.API.STREAM.NAMES, and to subscribe to <inbox prefix>.>;
// Apply also needs $JS.API.STREAM.CREATE.* and $JS.API.STREAM.UPDATE.*.
package publish
