package natsserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ClusterOptions are the options of n servers that form one cluster on free ports. A port can be taken by somebody else between this call and
// the start of its server; starting fails then.
func ClusterOptions(name string, n int) ([]Options, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	routes := make([]string, n)
	for i := range routes {
		routes[i] = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[n+i]))
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

func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 50 * n {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // held until all are found, so that none is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find free ports: too many are taken")
}
