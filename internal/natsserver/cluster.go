package natsserver

import (
	"fmt"
	"net"
	"strconv"

	"github.com/outlane/outlane/internal/port"
)

// ClusterOptions are the options of n servers that form one cluster. Their ports are theirs until this process ends.
func ClusterOptions(name string, n int) ([]Options, error) {
	ports := make([]int, 2*n)
	for i := range ports {
		var err error
		if ports[i], err = port.Reserve(); err != nil {
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

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
