package partition

import (
	"crypto/md5"
	"encoding/binary"
)

const (
	// MaxPartitions is the largest number of partitions an outbox may have.
	MaxPartitions = 4096

	// DefaultPartitions is the number of partitions an outbox gets where none is asked for.
	DefaultPartitions = 64
)

// Hash returns the first four bytes of the MD5 of the key's bytes, as an unsigned big-endian number. MD5 is chosen because every database and
// language has it, not for secrecy.
func Hash(key string) uint32 {
	sum := md5.Sum([]byte(key))
	return binary.BigEndian.Uint32(sum[:4])
}

// Of returns the partition of a key among n partitions: a number from 0 to n-1. It panics if n is not positive.
func Of(key string, n int) int {
	if n < 1 {
		panic("partition: the number of partitions must be positive")
	}
	return int(uint64(Hash(key)) % uint64(n))
}
