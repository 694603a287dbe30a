package upkeep_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// forgetful is a bus that has forgotten the ids of events, so that it takes them again.
type forgetful struct {
	*membus.Bus

	taken  []int64
	refuse int64 // the event that it does not take, once; 0: none
}

func (f *forgetful) PublishEvents(ctx context.Context, tenant string, run state.RunID, events []bus.Event) error {
	if f.refuse > 0 && events[len(events)-1].Seq >= f.refuse {
		f.refuse = 0
		return errors.New("no answer")
	}
	for _, e := range events {
		f.taken = append(f.taken, e.Seq)
	}
	return f.Bus.PublishEvents(ctx, tenant, run, events)
}

// Workers take turns in publishing a long log, and one fails midway: each event is published once, in order.
func TestFeedOfSeveralWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(memstore.Config{}), &forgetful{Bus: membus.New()}
		run := state.State{ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAB", Tenant: "acme", Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			run = run.Append(state.Entry{Type: state.EntryProgress, At: state.At(time.Now())})
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		first, second := upkeep.NewFeed(store, b, slog.New(slog.DiscardHandler)), upkeep.NewFeed(store, b, slog.New(slog.DiscardHandler))
		for _, step := range []struct {
			by     *upkeep.Feed
			upTo   int64
			refuse int64
		}{{first, 2, 0}, {first, 3, 0}, {second, 600, 300}, {first, 601, 0}, {first, 601, 0}, {second, run.LogLen(), 0}} {
			if b.refuse = step.refuse; b.refuse > 0 {
				if err := step.by.Flush(t.Context(), "acme", run.ID, step.upTo); err == nil {
					t.Fatal("Flush returned no error although the bus has")
				}
			}
			if err := step.by.Flush(t.Context(), "acme", run.ID, step.upTo); err != nil {
				t.Fatal(err)
			}
			if n := int64(len(b.taken)); n != step.upTo {
				t.Fatalf("%d events were published, want %d", n, step.upTo)
			}
			time.Sleep(2 * time.Minute) // as long as a bus remembers ids
		}
		for i, seq := range b.taken {
			if seq != int64(i+1) {
				t.Fatalf("event %d was published in the place of %d", seq, i+1)
			}
		}
	})
}
