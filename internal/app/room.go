package app

import (
	"os"
	"runtime"
)

// room is how many bytes of garbage a process may gather beyond what the runtime would
// allow it.
const room = 64 << 20

// Room lets garbage gather until release is called: a process that holds little and
// allocates much would else collect it tens of times a second. The room is memory that
// nobody touches, so it is none that the process takes; what it takes is bounded by it,
// which a percentage is not. Whoever sets GOGC or GOMEMLIMIT knows better.
func Room() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ballast := make([]byte, room)
	return func() { runtime.KeepAlive(ballast) }
}
