// Package postgres runs private PostgreSQL servers, and pgbouncer in front of them, for tests and for `outlane demo`.
//
// What it promises: a server listens on 127.0.0.1 only (unless Options.Listen says more), in a temporary folder of its own, with trust authentication for the superuser
// "postgres". It runs as the OS user "postgres" (or "nobody") when the caller is root, since PostgreSQL refuses root. It never outlives
// the process that started it, however that process ends, SIGKILL included: a small guard notices, stops the server and removes the folder.
// A server can be stopped, crashed, frozen, demoted and started again on the same port with the same data.
//
// What it does not promise: durability (Options.Settings decide; the folder is removed by Close), or safety from other users of the same
// machine, who can connect. It is for Linux. Nothing here is meant for a server that holds data somebody needs.
//
// The methods of Server may be called from any goroutine; they take turns.
package postgres
