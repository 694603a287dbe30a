package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// outlet is a bus on which something happens to the events that end the first turn.
type outlet struct {
	bus.Bus

	ending func(ctx context.Context, send func() func(context.Context) error) func(context.Context) error

	mu   sync.Mutex
	done bool
}

func (o *outlet) Tell(ctx context.Context, run state.RunID, events []bus.Event) func(context.Context) error {
	send := func() func(context.Context) error { return o.Bus.Tell(ctx, run, events) }
	o.mu.Lock()
	first := !o.done && slices.ContainsFunc(events, func(e bus.Event) bool { return strings.Contains(string(e.Data), `"reason":"next_turn"`) })
	o.done = o.done || first
	o.mu.Unlock()
	if first {
		return o.ending(ctx, send)
	}
	return send()
}

func (o *outlet) Announce(ctx context.Context, run state.RunID, events []bus.Event) error {
	return o.Tell(ctx, run, events)(ctx)
}

// The next turn of a run that is alone does not wait until the events of the turn before
// are stored.
func TestNextTurnDoesNotWaitForEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	begun := make(chan struct{})
	s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
	s.tools["two"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		close(begun)
		return tool.Result{Content: "2"}, nil
	})
	slow := &outlet{Bus: s.bus, ending: func(_ context.Context, send func() func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-begun:
				return send()(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}
	cfg := s.config()
	cfg.Grace = time.Hour // the sweeper would publish it
	s.workWith(s.store, slow, cfg)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}, {Name: "two"}}, call("one", "c1"), call("two", "c2"), model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
}

// I9: a turn that was published together with the events of the one before proves
// nothing. If those were lost, whoever takes it announces them, before its own.
func TestEventsAreAnnouncedByTheNextTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
	lossy := &outlet{Bus: s.bus, ending: func(context.Context, func() func(context.Context) error) func(context.Context) error {
		return func(context.Context) error { return errors.New("no room") }
	}}
	id := s.create(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
	var mu sync.Mutex
	var seen []int64
	all := make(chan struct{}, 64)
	stop, err := s.bus.Watch(t.Context(), id, func(e bus.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Seq > 0 {
			seen = append(seen, e.Seq)
			all <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.workWith(s.store, lossy, s.config())
	s.start(id)
	end := s.awaitReason(id, state.EndCompleted)
	for range end.LogLen() {
		<-all
	}
	mu.Lock()
	defer mu.Unlock()
	for i, seq := range seen {
		if seq != int64(i+1) {
			t.Fatalf("events came as %v", seen)
		}
	}
}
