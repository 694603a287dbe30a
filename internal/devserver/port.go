package devserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort returns an unused loopback port for a server of a test or a measurement. It is outside
// the system's range for client connections, so no other connection takes it before the server does.
func FreePort() (int, error) {
	for range 100 {
		port := 10_000 + rand.IntN(20_000) //nolint:gosec // not a secret
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found: close programs that use ports, or name an address")
}
