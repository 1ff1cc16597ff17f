package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written as 4MiB, 500kB or 1073741824.
type ByteSize int64

var byteUnits = []struct {
	name string
	size int64
}{
	{"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3},
	{"B", 1},
}

var errByteSize = errors.New("want a size such as 4MiB, 500kB or 1048576")

// ParseByteSize reads a whole number with an optional unit: B, kB, MB, GB, TB, PB (thousands), KiB, MiB, GiB, TiB, PiB (of 1024). The case
// of the letters does not matter, and a space may stand before the unit.
func ParseByteSize(text string) (ByteSize, error) {
	digits := strings.TrimRight(strings.TrimSpace(text), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.TrimSpace(text)[len(digits):]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 {
		return 0, errByteSize
	}
	size := int64(1)
	if unit != "" {
		size = 0
		for _, u := range byteUnits {
			if strings.EqualFold(u.name, unit) {
				size = u.size
			}
		}
		if size == 0 {
			return 0, errByteSize
		}
	}
	if n > math.MaxInt64/size {
		return 0, errByteSize
	}
	return ByteSize(n * size), nil
}

// String writes the size with the largest unit that keeps it whole, so that ParseByteSize gives it back.
func (b ByteSize) String() string {
	for _, u := range byteUnits {
		if int64(b) >= u.size && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}
