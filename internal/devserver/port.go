package devserver

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort returns an unused TCP port of 127.0.0.1 for a server of a test or a measurement. It is outside the range
// from which Linux, macOS and Windows by default take the ports of client connections. Another server may take it, and
// two calls may return the same port.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := 10_000 + rand.IntN(20_000) //nolint:gosec // not a secret
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("none of 100 ports tried between 10000 and 29999 of 127.0.0.1 is free (%w): close programs that listen there, and retry", last)
}
