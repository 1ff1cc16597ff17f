// Package leasebench measures what a pool costs a Kubernetes API server: many members and partitions against one real API server and etcd, all
// on this machine, the members in this process. It is what `make bench-lease` runs.
//
// The members are real ones (package lease) whose work costs nothing, so that every time measured is that of ownership alone. Each has its own
// connections. Writes are counted by the API server, bytes on the members' connections, with TLS and everything.
package leasebench
