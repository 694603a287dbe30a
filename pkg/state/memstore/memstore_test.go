package memstore_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func open(*testing.T) state.Store { return memstore.New(memstore.Config{}) }

func TestStore(t *testing.T) {
	t.Parallel()
	turnpiketest.Store(t, open)
	statetest.Heartbeats(t, open(t))
	statetest.ManySignals(t, open(t))
}

// The comparison of stores is itself sound: a store agrees with another of its
// kind.
func TestAgree(t *testing.T) {
	t.Parallel()
	statetest.Agree(t, open, open)
}
