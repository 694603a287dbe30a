package admission

import (
	"fmt"
	"testing"
)

// An ordinary death of a worker fills no quarantine, however many slots it had: all turns that died with it for
// the first time fit into an empty one.
func TestQuarantineHasRoomByAttempt(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 31, 1_000, 1_024, 5_000, 10_000, 100_000} {
		for attempt, want := range map[int]int{1: 3 * slots, 2: slots, 3: min(slots, 32), 4: 1, 5: 1} {
			t.Run(fmt.Sprintf("%d slots attempt %d", slots, attempt), func(t *testing.T) {
				t.Parallel()
				q, got := NewQuarantine(slots, 5), 0
				for got < 3*slots {
					if _, ok := q.Admit(attempt, false); !ok {
						break
					}
					got++
				}
				if got != want {
					t.Errorf("%d are admitted together, want %d", got, want)
				}
			})
		}
	}
}
