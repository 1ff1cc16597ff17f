package natsserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// ClusterOptions are the options of n servers that form one cluster. Their ports are theirs until this process ends.
func ClusterOptions(name string, n int) ([]Options, error) {
	ports := make([]int, 2*n)
	for i := range ports {
		var err error
		if ports[i], err = ReservePort(); err != nil {
			return nil, err
		}
	}
	routes := make([]string, n)
	for i := range routes {
		routes[i] = "nats://" + address(ports[n+i])
	}
	members := make([]Options, n)
	for i := range members {
		members[i] = Options{
			Name:    fmt.Sprintf("%s-%d", name, i+1),
			Port:    ports[i],
			Cluster: Cluster{Name: name, Port: ports[n+i], Routes: routes},
		}
	}
	return members, nil
}

// Ports are taken from below the range that systems give to outgoing connections: one of those would otherwise, now and then, hold the port of
// a server that is stopped for a moment.
const (
	lowestPort  = 12000
	highestPort = 32000
)

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// reserved holds, for each port that ReservePort gave away, the UDP port of the same number: while a server is stopped its own port is free for
// everybody, and this is how processes that run this code tell each other.
var reserved struct {
	sync.Mutex
	held []net.PacketConn
}

// ReservePort finds a free TCP port. ReservePort does not give it away again, in any process, while this one lives.
func ReservePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		mark, err := net.ListenPacket("udp", address(port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address(port))
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
	return 0, errors.New("find a free port: too many are taken")
}
