package gateway

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A few crowded runs among many are an accident of their shards; many are a crowd, and
// the others are of it, until it is gone.
func TestCrowdFull(t *testing.T) {
	t.Parallel()
	var c crowd
	note := func(times int, each ...bool) {
		for range times {
			for _, crowded := range each {
				c.note(state.State{Status: state.Queued, Crowded: crowded})
			}
		}
	}
	note(1000, true, false, false, false, false, false)
	if c.full() {
		t.Error("one in six is a crowd")
	}
	note(60, true, false, false)
	if !c.full() {
		t.Error("one in three is no crowd")
	}
	c.note(state.State{Status: state.Waiting})
	note(crowdFull, false)
	if c.full() {
		t.Error("what is gone is a crowd")
	}
}
