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

// The record of a batch lasts while a run of the batch exists, however many runs of others are deleted.
func TestRecordOfABatchLasts(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	first := state.FirstIDAt(time.Now())
	for i := range 2 {
		st := state.State{ID: first.Plus(i), Tenant: state.DefaultTenant, Status: state.Completed, Version: 2, Batch: &state.Batch{Index: i, Size: 2, MaxParallel: 1}}
		if _, err := s.Create(t.Context(), state.NewRun{State: st}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // the store drops what has expired at 1024 markers, and at twice as many
		if err := s.PreventCreation(t.Context(), state.DefaultTenant, first.Plus(2+i)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.DeletedOfBatch(t.Context(), first)
	if err != nil || got.Size != 2 || got.Deleted[0] != state.Completed {
		t.Errorf("the record of the batch is %+v, %v; want one completed run of 2", got, err)
	}
}
