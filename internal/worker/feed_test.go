package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// outlet is a bus that calls the test for each event on its feed.
type outlet struct {
	bus.Bus

	publish func(ctx context.Context, send func() error) error
}

func (o outlet) PublishEvents(ctx context.Context, tenant string, run state.RunID, events []bus.Event) error {
	return o.publish(ctx, func() error { return o.Bus.PublishEvents(ctx, tenant, run, events) })
}

// fed collects the sequence numbers of a run's events on the feed.
func (s *deployment) fed() func(state.RunID) []int64 {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[state.RunID][]int64{}
	stop, err := s.bus.ReadFeed(func(p membus.Published) {
		mu.Lock()
		defer mu.Unlock()
		seen[p.Run] = append(seen[p.Run], p.Event.Seq)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(stop)
	return func(run state.RunID) []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen[run])
	}
}

// awaitFed waits until the feed has the whole log of an ended run, in order.
func (s *deployment) awaitFed(fed func(state.RunID) []int64, end state.State) {
	s.t.Helper()
	s.await(end.ID, "the feed has all events", func(state.State) bool { return int64(len(fed(end.ID))) >= end.LogLen() })
	for i, seq := range fed(end.ID) {
		if seq != int64(i+1) {
			s.t.Fatalf("the feed has the events %v", fed(end.ID))
		}
	}
}

// Turns do not wait for a slow feed.
func TestTurnsDoNotWaitForTheFeed(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	begun := make(chan struct{})
	s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
	s.tools["two"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		close(begun)
		return tool.Result{Content: "2"}, nil
	})
	slow := outlet{s.bus, func(ctx context.Context, send func() error) error {
		select {
		case <-begun:
			return send()
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	fed := s.fed()
	cfg := s.config()
	cfg.EventFeed, cfg.RedeliveryDelay = true, time.Hour // otherwise the sweeper would publish it
	s.workWith(s.store, slow, cfg)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}, {Name: "two"}}, call("one", "c1"), call("two", "c2"), model.Scripted{Text: "end"})
	s.awaitFed(fed, s.awaitReason(id, state.EndCompleted))
}

// A worker publishes events that the feed did not accept from the log, in order, before it finalizes the run.
// Any worker can do that (I9).
func TestFeedIsRepairedFromTheLog(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
	var failures atomic.Int32
	lossy := outlet{s.bus, func(_ context.Context, send func() error) error {
		if failures.Add(1) <= 6 {
			return errors.New("no answer")
		}
		return send()
	}}
	fed := s.fed()
	for range 2 {
		cfg := s.config()
		cfg.EventFeed = true
		s.workWith(s.store, lossy, cfg)
	}
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), call("one", "c2"), model.Scripted{Text: "end"})
	s.awaitFed(fed, s.awaitReason(id, state.EndCompleted))
}

// A deployment without a feed publishes no events.
func TestNoFeed(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	fed := s.fed()
	s.work(s.config())
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
	if n := len(fed(id)); n != 0 {
		t.Errorf("%d events were published", n)
	}
}
