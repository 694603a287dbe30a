package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// holding is a model that holds calls with large prompts until release is closed, and counts those in flight.
type holding struct {
	model.Provider

	now, most atomic.Int64
	began     chan struct{}
	release   chan struct{}
}

func (h *holding) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if state.Weight(r.Messages) > 1<<20 {
		n := h.now.Add(1)
		defer h.now.Add(-1)
		for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
		}
		h.began <- struct{}{}
		select {
		case <-h.release:
		case <-ctx.Done():
			return model.Response{}, ctx.Err()
		}
	}
	return h.Provider.Generate(ctx, r, onDelta)
}

// largeViews returns a deployment with a holding model and a tool whose result takes 2 MiB, and a function that submits
// a run of a tenant whose second turn has that view.
func largeViews(t *testing.T) (*deployment, *holding, func(tenant string) state.RunID) {
	t.Helper()
	s := newDeployment(t)
	h := &holding{Provider: scripted.New(), began: make(chan struct{}, 100), release: make(chan struct{})}
	s.model = h
	s.tools["look"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Content: strings.Repeat("x", 2<<20)}, nil
	})
	return s, h, func(tenant string) state.RunID {
		s.tenant = tenant
		return s.submit(state.Limits{}, []agent.Tool{{Name: "look", MaxResult: 2 << 20}}, call("look", "c"), model.Scripted{Text: "done"})
	}
}

// Turns with large views share a budget of memory. A tenant that uses up its half holds up no small turn, and no large
// turn of another tenant.
func TestLargeViewsShareMemory(t *testing.T) {
	t.Parallel()
	s, h, submit := largeViews(t)
	cfg := s.config()
	cfg.ViewMemory, cfg.Slots = 9<<20, 100 // for two views; one turn of a tenant may wait, others are released
	s.work(cfg)
	var runs []state.RunID
	for range 4 {
		runs = append(runs, submit("greedy"))
	}
	for _, id := range runs {
		s.await(id, "a large view", func(st state.State) bool { return st.LogBytes > 2<<20 })
	}
	<-h.began
	for _, tenant := range []string{"greedy", "quiet"} {
		s.tenant = tenant
		s.awaitReason(s.submit(state.Limits{}, nil, model.Scripted{Text: "small"}), state.EndCompleted)
	}
	runs = append(runs, submit("quiet"))
	<-h.began
	close(h.release)
	for _, id := range runs {
		s.awaitReason(id, state.EndCompleted)
		s.endsAtAttempt(id, 1)
	}
	if n := h.most.Load(); n != 2 {
		t.Errorf("%d large views were in memory at once, want one of each tenant", n)
	}
}

// A view that is larger than the whole budget gets all of it.
func TestViewLargerThanTheMemory(t *testing.T) {
	t.Parallel()
	s, h, submit := largeViews(t)
	close(h.release)
	cfg := s.config()
	cfg.ViewMemory = 1 << 20
	s.work(cfg)
	for _, id := range []state.RunID{submit("a"), submit("b"), submit("a")} {
		s.awaitReason(id, state.EndCompleted)
	}
	if n := h.most.Load(); n != 1 {
		t.Errorf("%d views were in memory at once, want 1", n)
	}
}

// A turn that waits for memory is released by an abort and by a shutdown. Neither counts as an attempt.
func TestWaitForMemoryOfAView(t *testing.T) {
	t.Parallel()
	s, h, submit := largeViews(t)
	cfg := s.config()
	cfg.ViewMemory = 1 << 20
	stop := s.work(cfg)
	first := submit("a")
	<-h.began
	waits, aborted := submit("a"), submit("a")
	for _, id := range []state.RunID{waits, aborted} {
		s.await(id, "a claim that waits", func(st state.State) bool { return st.LogBytes > 2<<20 && st.Status == state.Running })
	}
	s.abort(aborted)
	stop()
	close(h.release)
	s.work(s.config())
	s.await(aborted, "cancelled", func(st state.State) bool { return st.Status == state.Cancelled })
	for _, id := range []state.RunID{first, waits} {
		s.awaitReason(id, state.EndCompleted)
		s.endsAtAttempt(id, 1)
	}
}

// A response that makes a view large takes memory of the same budget while its tools run. A turn that finds none free
// leaves its response in the journal, and another attempt continues from there: no call of the model is repeated.
func TestLargeResponsesShareMemory(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var now, most, calls atomic.Int64
	began, release := make(chan struct{}, 100), make(chan struct{})
	s.tools["send"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		began <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return tool.Result{Content: "sent"}, nil
	})
	s.model = counting{scripted.New(), &calls}
	cfg := s.config()
	cfg.ViewMemory, cfg.Slots = 8<<20, 100 // a tenant's half is for two of its responses
	s.work(cfg)
	large := model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "send", Arguments: json.RawMessage(`{"text":"` + strings.Repeat("x", 900<<10) + `"}`)}}}
	var runs []state.RunID
	for range 6 {
		runs = append(runs, s.submit(state.Limits{}, []agent.Tool{{Name: "send"}}, large, model.Scripted{Text: "done"}))
	}
	for _, id := range runs {
		s.await(id, "a journaled response", func(state.State) bool {
			log, err := s.store.Log(t.Context(), id, 0, 0)
			return err == nil && slices.ContainsFunc(log, func(e state.Entry) bool { return e.Type == state.EntryModel })
		})
	}
	<-began
	<-began
	close(release)
	for _, id := range runs {
		s.awaitReason(id, state.EndCompleted)
		s.endsAtAttempt(id, 1)
	}
	if n := most.Load(); n != 2 {
		t.Errorf("tools of %d large responses ran at once, want 2", n)
	}
	if n := calls.Load(); n != int64(2*len(runs)) {
		t.Errorf("the model was called %d times for %d runs of two turns", n, len(runs))
	}
}

// counting counts the calls of a model.
type counting struct {
	model.Provider

	calls *atomic.Int64
}

func (c counting) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	c.calls.Add(1)
	return c.Provider.Generate(ctx, r, onDelta)
}

// endsAtAttempt requires the last turn of a run to have been made at its n-th attempt.
func (s *deployment) endsAtAttempt(id state.RunID, n int) {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if end := log[len(log)-1]; end.Attempt != n {
		s.t.Errorf("run %s ended at attempt %d, want %d", id, end.Attempt, n)
	}
}
