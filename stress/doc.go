// Package stress tests the promises of the pool at their seams, with whole worker processes between a real Postgres and a real NATS server: processes
// that are killed or stopped at named points (internal/crash), owners that do not know that they are none any more, two owners at once. What the
// streams hold afterwards is judged by internal/history.
//
// Nearly all the time of these tests is spent in waiting for leases to run out, so many run at a time.
package stress
