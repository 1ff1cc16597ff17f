package lease

import (
	"crypto/rand"
	"strings"
)

const suffixLength = 10

// NewID returns an identity for a member: the name, which may be that of a host or "", and a random suffix. Each process start needs a new
// one, so that a restarted process never takes itself for the one before it, even if both have the same name.
func NewID(name string) string {
	suffix := strings.ToLower(rand.Text()[:suffixLength])
	if name == "" {
		return suffix
	}
	return name + "-" + suffix
}

// nameOfID is the name that NewID was given. An identity that NewID did not make is its own name.
func nameOfID(id string) string {
	if at := len(id) - suffixLength - 1; at >= 0 && id[at] == '-' {
		return id[:at]
	}
	return id
}
