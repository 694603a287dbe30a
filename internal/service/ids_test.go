package service

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Ids sort by creation time, also within a millisecond and next to batches.
func TestIDsSort(t *testing.T) {
	t.Parallel()
	i := ids{random: rand.Reader}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	last := state.RunID("")
	for n := range 3000 {
		size := 1 + n%7
		id, err := i.next(now.Add(time.Duration(n/1000)*time.Millisecond), size)
		if err != nil {
			t.Fatal(err)
		}
		if id <= last || len(id) != len(state.RunPrefix)+26 {
			t.Fatalf("%s comes after %s", id, last)
		}
		last = id.Plus(size - 1)
	}
}
