package memstore_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/statetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	statetest.Exercise(t, func(*testing.T) state.Store { return memstore.New(memstore.Config{}) })
}
