// Package partition says which partition a key belongs to, and which member of a pool should hold which partition.
//
// Everything here is a pure function: the same arguments give the same result in every process, in every version. The mapping of keys is part of
// the data: rows in the outbox carry the partition that it gave, the trigger computes it in SQL (outlane_partition_of), and other languages may
// compute it too. It must therefore never change; testdata/vectors.json holds it fixed for all of them.
//
// Not promised: that equal text means an equal key. Keys are bytes. Two Unicode normal forms of one word are two keys, and so are "a" and "a ".
// Nor does the mapping spread a key: all events of one key are in one partition, however many there are.
package partition
