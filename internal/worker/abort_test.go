package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// striker aborts a run after a chosen number of its actions: the start of a model or tool call, or an event of
// the run.
type striker struct {
	s  *deployment
	mu sync.Mutex

	at      map[state.RunID]int      // the number of actions after which the run is aborted
	started map[state.RunID][]string // what a worker started after it had seen the abort
}

// eye records what the striker observes of one worker.
type eye struct {
	*striker

	bus.Bus
	seen map[state.RunID]bool // guarded by the striker's mutex
}

func (k *striker) heard(run state.RunID) {
	k.mu.Lock()
	n, ok := k.at[run]
	if ok {
		k.at[run] = n - 1
	}
	k.mu.Unlock()
	if ok && n == 1 {
		// This is what a gateway does. The run may have ended.
		if wake, err := k.s.store.Abort(context.Background(), run, state.Abort{Reason: "enough"}, k.s.delay()); err == nil {
			if wake.Publish {
				_ = k.s.bus.PublishTurn(context.Background(), bus.Turn{Run: run, Version: wake.Version, Priority: state.High}, fmt.Sprintf("%s:%d:abort", run, wake.Version))
			}
			_ = k.s.bus.PublishAbort(context.Background(), bus.Abort{Run: run, Reason: "enough", Version: wake.Version})
		}
	}
}

// start records the start of an action, unless ctx has already ended.
func (e *eye) start(ctx context.Context, run state.RunID, what string) {
	e.mu.Lock()
	if e.seen[run] && ctx.Err() == nil {
		e.started[run] = append(e.started[run], what)
	}
	e.mu.Unlock()
	e.heard(run)
}

// Generate puts the eye between the worker and the scripted model. It refuses histories that a provider would
// refuse (A4).
func (e *eye) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	e.start(ctx, r.Run, "model")
	for i := 0; i < len(r.Messages); i++ {
		calls := r.Messages[i].Calls()
		for j, c := range calls {
			if at := i + 1 + j; at >= len(r.Messages) || r.Messages[at].Role != state.RoleTool || r.Messages[at].Parts[0].CallID != c.ID {
				return model.Response{}, &model.Error{Class: model.InvalidRequest, Message: "a call has no result"}
			}
		}
		i += len(calls)
	}
	return e.s.model.Generate(ctx, r, onDelta)
}

// Aborts records each abort after the worker has handled it.
func (e *eye) Aborts(ctx context.Context, fn func(bus.Abort)) (func(), error) {
	return e.Bus.Aborts(ctx, func(a bus.Abort) {
		fn(a)
		e.mu.Lock()
		e.seen[a.Run] = true
		e.mu.Unlock()
	})
}

// PublishLive strikes at live events of an attempt.
func (e *eye) PublishLive(run state.RunID, data []byte) {
	e.Bus.PublishLive(run, data)
	e.heard(run)
}

// NotifyAppended strikes at entries that the store has written.
func (e *eye) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	e.Bus.NotifyAppended(tenant, run, from, to)
	for range to - from {
		e.heard(run)
	}
}

// Watchers makes the worker send all live events.
func (e *eye) Watchers(context.Context) (bus.Watchers, error) { return everything{}, nil }

type everything struct{}

func (everything) Watched(state.RunID) bool { return true }
func (everything) Stop()                    {}

// Runs that are aborted at arbitrary moments end with every call answered. Nothing starts after the worker has
// seen the abort, and a model accepts the remaining history (I5, I7, A4, A5).
func TestAbortAtAnyMoment(t *testing.T) {
	t.Parallel()
	runs := 1000
	if testing.Short() {
		runs = 100
	}
	s := newDeployment(t)
	k := &striker{s: s, at: map[state.RunID]int{}, started: map[state.RunID][]string{}}
	for range 3 {
		e := &eye{striker: k, Bus: s.bus, seen: map[state.RunID]bool{}}
		cfg := s.config()
		cfg.Providers = map[string]model.Provider{"scripted": e}
		functions := map[string]tool.Tool{}
		cfg.Kinds = toolspec.Kinds(functions)
		for _, name := range []string{"a", "b", "c"} {
			functions[name] = tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
				e.start(ctx, c.Run, "tool "+name)
				if err := ctx.Err(); err != nil {
					return tool.Result{}, err
				}
				return tool.Result{Content: name}, nil
			})
		}
		s.workWith(s.store, e, cfg)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	def := agent.Definition{
		Name: "a", Tools: []agent.Tool{{Name: "a"}, {Name: "b"}, {Name: "c", Concurrency: "serial"}, {Name: agent.AskUser, Kind: toolspec.Human}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{
			{ToolCalls: []model.ScriptedCall{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "a"}}},
			{Text: "hm", ToolCalls: []model.ScriptedCall{{Name: "c"}, {Name: "b"}}},
			{ToolCalls: []model.ScriptedCall{{Name: "a"}, {Name: agent.AskUser, Arguments: []byte(`{"question":"sure?"}`)}}},
			{Text: "done"}, {Text: "after all"}, {Text: "after all"},
		}},
	}
	ids := make([]state.RunID, runs)
	for i := range ids {
		id := s.createFor(def, state.Limits{})
		k.mu.Lock()
		k.at[id] = 1 + rng.IntN(36) // slightly more than the number of actions before the question
		k.mu.Unlock()
		ids[i] = s.start(id)
	}
	reasons := map[state.Reason]int{}
	for _, id := range ids {
		st := s.await(id, "an end, or the question", func(st state.State) bool { return st.Status.Terminal() || st.Status == state.Waiting })
		if st.Status == state.Waiting {
			k.mu.Lock()
			k.at[id] = 1
			k.mu.Unlock()
			k.heard(id)
			st = s.await(id, "the end of an aborted wait", func(st state.State) bool { return st.Status.Terminal() })
		}
		reasons[st.Transition.Reason]++
		wantPaired(t, s, id)
		k.mu.Lock()
		if after := k.started[id]; len(after) > 0 {
			t.Errorf("seed %d: run %s started %v after the abort was seen (I7)", seed, id, after)
		}
		delete(k.at, id)
		k.mu.Unlock()
		if st.Status != state.Cancelled {
			t.Errorf("seed %d: run %s is %s (%s), want cancelled", seed, id, st.Status, st.Transition.Reason)
		}
	}
	if len(reasons) < 3 {
		t.Errorf("seed %d: the aborts struck at too few kinds of action: %v", seed, reasons)
	}
	// Some of the runs continue: the strict model accepts their histories.
	for i, id := range ids[:runs/20] {
		said := state.UserText("go on")
		s.signal(id, state.Signal{ID: fmt.Sprintf("go on %d", i), Message: &said})
		s.await(id, "a pause or an end that no abort made", func(st state.State) bool {
			return st.Status == state.Completed || st.Status == state.Waiting && st.Waiting.Reason == state.WaitingHumanInput
		})
	}
	t.Logf("aborted at: %v", reasons)
}

// wantPaired fails unless each call is followed by its result (I5).
func wantPaired(t *testing.T, s *deployment, id state.RunID) {
	t.Helper()
	view := s.view(id)
	for i := 0; i < len(view); i++ {
		calls := view[i].Calls()
		for j, c := range calls {
			if at := i + 1 + j; at >= len(view) || view[at].Role != state.RoleTool || view[at].Parts[0].CallID != c.ID {
				t.Errorf("run %s: call %s has no result after it (I5)", id, c.ID)
			}
		}
		i += len(calls)
	}
}

// An abort ends a tool call and a model call in flight (I7, A5). The log names who aborted the run.
func TestAbortReachesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	wantBy := func(id state.RunID) {
		t.Helper()
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if by := log[len(log)-1].By; by == nil || by.Principal != "ada" {
			t.Errorf("run %s was ended by %+v, want ada", id, by)
		}
	}
	slow := newBlocking()
	s.tools["slow"] = slow
	cfg := s.config()
	asked := make(chan state.RunID, 10)
	cfg.Providers = map[string]model.Provider{"scripted": reporting{s.model, asked}}
	s.work(cfg)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow"}}, call("slow", "c1"))
	<-asked
	<-slow.started
	s.abort(id)
	s.awaitReason(id, state.EndAbortedTools)
	wantBy(id)
	if diff := gocmp.Diff([]string{"user: hello", "assistant: c1", "tool: Interrupted mid-execution"}, s.transcript(id)); diff != "" {
		t.Errorf("transcript:\n%s", diff)
	}

	id = s.submit(state.Limits{}, nil, model.Scripted{Text: "never", Delay: model.Duration(time.Hour)}, model.Scripted{Text: "went on"})
	<-asked
	s.abort(id)
	s.awaitReason(id, state.EndAbortedStreaming)
	wantBy(id)

	// A user message continues the run.
	said := state.UserText("go on")
	s.signal(id, state.Signal{ID: "s1", Message: &said})
	s.await(id, "an end after the continuation", func(st state.State) bool { return st.Version >= 4 && st.Status.Terminal() })
}

// reporting is a model that reports each call.
type reporting struct {
	model.Provider

	asked chan<- state.RunID
}

func (p reporting) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	p.asked <- r.Run
	return p.Provider.Generate(ctx, r, onDelta)
}

// A worker with more turns than step goroutines ends all of them when all are aborted at once: no step waits
// for another.
func TestManyAbortsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		cfg := defaults(s.config())
		cfg.Slots, cfg.LeaseDuration = 1000, 25*time.Second
		s.work(cfg)
		v := slowAgent(t, s.store, time.Hour)
		var runs []state.RunID
		for range 1000 {
			runs = append(runs, s.start(queued(t, s.store, v)))
		}
		time.Sleep(10 * time.Second) // the bubble's clock
		for _, id := range runs {
			// Only the flag is set: the lease renewals find it, in one batch.
			if _, err := s.store.Abort(t.Context(), id, state.Abort{Reason: "enough"}, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		for _, id := range runs {
			if st, err := s.store.Load(t.Context(), id); err != nil || st.Status != state.Cancelled {
				t.Fatalf("run %s is %s, %v", id, st.Status, err)
			}
		}
	})
}
