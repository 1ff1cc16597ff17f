// Package load is what the end-to-end scenarios move: databases and streams, producers that fill the former, and a check of what arrives in
// the latter.
//
// What it promises: each Site has a database and streams of its own, which are new. Its ledger knows of every event that a producer of
// this package inserted whether its transaction was committed, and when; its watch reads the streams all the time and knows when each was
// stored. Check compares both with each other, and the table with the streams by the rules of package history: nothing may be lost, doubled or
// out of order. Servers that Start runs do not outlive this process.
//
// What it does not promise: durable servers. It installs no tables and makes no streams: that is the chart's business.
//
// NATS servers are processes of this executable: main or TestMain calls natsserver.ServeChild first. Methods may be called from any goroutine,
// unless they say otherwise.
package load
