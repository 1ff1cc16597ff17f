// Package model is docs/protocol.md as a program: ownership, epochs and publishing as a small machine of states and steps, and an explorer that
// visits every state the machine can get into.
//
// # What it promises
//
// Explore visits every state that can be reached from an empty pool with at most Config.Faults faults, whatever order the steps come in. A member
// takes its steps one at a time and may rest for ever between any two of them, so that a process which is paused, cut off or slow needs no step of its
// own. Each state is checked (check.go), and from each there must be a way to the end, every partition owned and every event settled, by steps that
// are no faults. What is wrong comes back with a shortest run that leads to it.
//
// # What it does not promise
//
// It is no proof for more members, partitions, events or faults than were explored. It shows the protocol, not the code: the steps were written after
// packages lease, worker, store and publish, and whoever changes a rule there changes it here. Left out are: what a producer's snapshot shows beyond
// one transaction that commits late, wall time (whatever has a timeout may happen at any moment), and the loss of what a stream or Postgres had
// confirmed.
//
// States are told apart by 128 bits of hash. Two that share them would be taken for one; among 10^8 states the odds are below 10^-22.
package model
