package testbed

import (
	"testing"
	"time"
)

// Patience is the time that a test waits for an expected event. It is long enough for a busy machine.
const Patience = 2 * time.Minute

// Eventually waits until ok returns nil, and ends the test with its last error if that
// takes longer than Patience.
func Eventually(tb testing.TB, what string, ok func() error) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); ; <-tick.C {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}
