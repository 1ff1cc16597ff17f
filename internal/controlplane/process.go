package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// guardScript waits for the end of its standard input, which comes when the process that started it is gone, whatever ended it; the parts
// die with that process. Then it removes the folder.
const guardScript = `trap '' INT TERM HUP; read -r _; sleep 1; rm -rf "$1"`

// freePorts picks ports that nothing listens on, under the range from which the kernel takes ports for outgoing connections: one in that
// range could be taken while a stopped server is to come back to it.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 500 {
		port := 11000 + rand.IntN(21000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("close the probe of port %d: %w", port, err)
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find free ports on 127.0.0.1: too many tries failed")
}
