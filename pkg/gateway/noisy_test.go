package gateway

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A few runs among many that the store calls noisy are an accident of their shards; when
// they are many, the others are of the same tenants, until those are gone.
func TestNoisyTenantsCountForAll(t *testing.T) {
	t.Parallel()
	var c noisy
	note := func(times int, each ...bool) {
		for range times {
			for _, noisy := range each {
				c.note(state.Created{State: state.State{Status: state.Queued}, Noisy: noisy})
			}
		}
	}
	note(1000, true, false, false, false, false, false)
	if c.full() {
		t.Error("one in six is enough")
	}
	note(60, true, false, false)
	if !c.full() {
		t.Error("one in three is not enough")
	}
	c.note(state.Created{State: state.State{Status: state.Waiting}})
	note(noisyFull, false)
	if c.full() {
		t.Error("what is gone still counts")
	}
}
