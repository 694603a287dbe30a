package turn

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Operators see which turns cost a read of the log, and how much of it.
func TestLogSource(t *testing.T) {
	t.Parallel()
	log := make([]state.Entry, 4)
	for _, c := range []struct {
		want string
		c    state.Claim
	}{
		{"new", state.Claim{LogRead: 4, State: &state.State{Log: log}}},
		{"memory", state.Claim{State: &state.State{Turn: 2, Log: log}}},
		{"end", state.Claim{LogRead: 3, State: &state.State{Turn: 2, Log: log}}},
		{"store", state.Claim{LogRead: 4, State: &state.State{Turn: 2, Log: log}}},
		{"store", state.Claim{LogOmitted: true, State: &state.State{Turn: 2}}},
		{"memory", state.Claim{State: &state.State{Turn: 2}}},
	} {
		if got := logSource(&c.c); got != c.want {
			t.Errorf("the log of %+v comes from %q, want %q", c.c, got, c.want)
		}
	}
}
