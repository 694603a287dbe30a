package effect

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestGaps(t *testing.T) {
	t.Parallel()
	var g gaps
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// call is a model call of a run with an earlier call that long ago; 0 means none.
	call := func(agent string, ago time.Duration) bool {
		s := &state.State{Tenant: "t", Agent: agent}
		if ago > 0 {
			s.Log = []state.Entry{{Type: state.EntryModel, At: state.At(now.Add(-ago))}, {Type: state.EntryTool, At: state.At(now)}}
		}
		return g.longWait(s, now)
	}
	for _, step := range []struct {
		agent string
		ago   time.Duration
		want  bool
	}{
		{"a", 0, false},
		{"a", time.Second, false},
		{"a", 10 * time.Minute, true}, // this run waits
		{"a", 0, true},                // runs of this agent seem to wait
		{"b", 0, false},               // runs of another agent need not
		{"b", 2 * time.Hour, false},   // an entry of an hour would not have helped
		{"b", 5*time.Minute - time.Millisecond, false},
	} {
		if got := call(step.agent, step.ago); got != step.want {
			t.Errorf("%s after %v: %v", step.agent, step.ago, got)
		}
	}
	for range gapsKept {
		call("a", time.Second)
	}
	if call("a", 0) {
		t.Error("a wait still counts after sixteen calls without one")
	}
	for i := range 3 * gapAgents {
		call(fmt.Sprint(i), time.Second)
	}
	if n := len(g.agents); n > gapAgents {
		t.Errorf("%d agents are kept", n)
	}
}
