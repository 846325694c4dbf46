package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

// Free ports are taken below the ranges from which the systems number outgoing
// connections (32768 on Linux, 49152 elsewhere): a server that restarts on its
// port must not find a passing connection on it.
const (
	lowestPort  = 15000
	highestPort = 32000
	portTries   = 200
)

// checkPort fails, naming the port, when nothing can listen on it.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d on %s is not free: %w", port, loopback, err)
	}
	return l.Close()
}

// freePort finds a port that was free a moment ago. Another process may take it
// before the server does; callers that chose it themselves try again.
func freePort() (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if checkPort(port) == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port on " + loopback)
}
