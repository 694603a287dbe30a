package upkeep

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The detail of a lost run names the run that led to it, and which of both comes first.
func TestDetailOfALostRunOfABatch(t *testing.T) {
	t.Parallel()
	l := &lane{s: state.State{ID: "run_2"}}
	for step, want := range map[int]string{-1: "the run run_2 of its batch comes after it", 1: "the run run_2 of its batch comes before it"} {
		if got := l.lostDetail(step); !strings.HasPrefix(got, want) {
			t.Errorf("step %d: %q, want %q", step, got, want)
		}
	}
}
