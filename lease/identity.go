package lease

import (
	"crypto/rand"
	"strings"
)

// NewID returns an identity for a member: the name, which may be that of a host or "", and a random suffix. Each process start needs a new
// one, so that a restarted process never takes itself for the one before it, even if both have the same name.
func NewID(name string) string {
	suffix := strings.ToLower(rand.Text()[:10])
	if name == "" {
		return suffix
	}
	return name + "-" + suffix
}
