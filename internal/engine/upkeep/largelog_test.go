package upkeep_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// weighed is a store that measures the largest part of a log that a read returns.
type weighed struct {
	state.Store

	largest, reads atomic.Int64
}

func (s *weighed) weigh(log []state.Entry) {
	size := int64(0)
	for i := range log {
		size += log[i].Weight()
	}
	s.reads.Add(1)
	s.largest.Store(max(s.largest.Load(), size))
}

func (s *weighed) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	log, err := s.Store.Log(ctx, id, after, limit)
	s.weigh(log)
	return log, err
}

func (s *weighed) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	page, err := s.Store.LogPage(ctx, id, after, limit, bytes)
	s.weigh(page.Entries)
	return page, err
}

// The steps after the end of a run read its log in pages, so that a large one does not fill a worker's memory.
func TestFinalizeLargeLog(t *testing.T) {
	t.Parallel()
	const entry, entries = 512 << 10, 20
	store, b, log := &weighed{Store: memstore.New(memstore.Config{})}, membus.New(), slog.New(slog.DiscardHandler)
	f := upkeep.NewFinalizer(store, b, upkeep.FinalizerConfig{Clock: &clock.Clock{}, Feed: upkeep.NewFeed(store, b, log), Log: log})
	run := state.State{
		ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAB", Tenant: "acme", Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal,
		Webhook: &state.Webhook{URL: "https://example.com", Secret: state.SecretReferences{"secret://X"}, Events: []state.EntryType{state.EntryReflect}},
		Parent:  &state.Parent{RunID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAC", CallID: "c"},
	}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}})
	if err != nil {
		t.Fatal(err)
	}
	for range entries {
		run = run.Append(state.Entry{Type: state.EntryReflect, At: state.At(time.Now()), Messages: []state.Message{state.UserText(strings.Repeat("x", entry))}})
	}
	if run, err = run.Move(state.EndCompleted, state.Entry{At: state.At(time.Now()), Output: new("done")}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	if err := f.FinalizeRun(t.Context(), run.ID, 0); err != nil {
		t.Fatal(err)
	}
	if most := int64(3 << 20); store.largest.Load() > most || store.reads.Load() < 10 {
		t.Errorf("%d reads of the log, the largest of %d KiB, want at most %d KiB", store.reads.Load(), store.largest.Load()>>10, most>>10)
	}
}
