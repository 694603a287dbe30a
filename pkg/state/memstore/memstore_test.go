package memstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func open(*testing.T) state.Store { return memstore.New(memstore.Config{}) }

// The suite compares stores with a memstore. Comparing two memstores checks the comparison itself.
func TestStore(t *testing.T) {
	t.Parallel()
	turnpiketest.Store(t, open)
	statetest.Heartbeats(t, open(t)) // which the suite skips for a store that records none
}

func TestPausedKeys(t *testing.T) {
	t.Parallel()
	statetest.PausedKeys(t, func(_ *testing.T, now func() time.Time) state.Quotas { return memstore.New(memstore.Config{Now: now}) })
}
