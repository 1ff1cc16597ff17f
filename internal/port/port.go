// Package port finds TCP ports for private servers on 127.0.0.1.
//
// A port that Reserve returned is not returned again, in any process that uses this package, while the process that asked lives: also not
// while its server is stopped for a moment. It promises nothing about programs that choose their ports in another way.
package port

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that systems give to outgoing connections: one of those would otherwise, now and then, hold the port of
// a server that is stopped for a moment.
const (
	lowest  = 11000
	highest = 32000
)

// reserved holds, for each port that was given away, the UDP port of the same number: while a server is stopped its own port is free for
// everybody, and this is how processes tell each other.
var reserved struct {
	sync.Mutex
	held []net.PacketConn
}

// Reserve finds a free port.
func Reserve() (int, error) {
	for range 200 {
		port := lowest + rand.IntN(highest-lowest)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		mark, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			_ = mark.Close()
			continue
		}
		_ = l.Close()
		reserved.Lock()
		reserved.held = append(reserved.held, mark)
		reserved.Unlock()
		return port, nil
	}
	return 0, errors.New("find a free port on 127.0.0.1: too many are taken")
}
