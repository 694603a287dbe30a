package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// family is a store and a bus that note what becomes of a parent run and its children, and agents.
type family struct {
	state.Store
	*membus.Bus

	t     *testing.T
	agent *agent.Agent
	admit func(runs []state.RunID) state.Admitted // nil: all of them
	noisy bool                                    // of the tenant of children
	runs  map[state.RunID]state.State             // instead of those in the store
	gone  []state.RunID                           // deleted
	ends  state.RunID                             // gets an abort once a child is created
	takes map[state.RunID]error                   // how runs take a signal; nil: they do
	wake  state.Wake                              // the answer to signals
	past  map[int]state.Status                    // runs of a batch that were deleted long ago

	mu      sync.Mutex
	signals map[state.RunID][]state.Signal
	aborted []state.RunID
	turns   []bus.Turn
	created []state.RunID
}

func newFamily(t *testing.T) *family {
	t.Helper()
	return newFamilyOf(t, "a")
}

// newFamilyOf returns a family whose agent delegates to the agent with the given name.
func newFamilyOf(t *testing.T, name string) *family {
	t.Helper()
	def := agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "unused"}}},
		Tools: []agent.Tool{{Name: "helper", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: name})}},
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := &family{Store: memstore.New(memstore.Config{}), Bus: membus.New(), t: t, agent: a, signals: map[state.RunID][]state.Signal{}}
	if _, err := f.PutAgent(t.Context(), "acme", name, []byte("{}"), false); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *family) Get(context.Context, string, string, int) (*agent.Agent, error) { return f.agent, nil }
func (f *family) Of(context.Context, *state.State) (*agent.Agent, error)         { return f.agent, nil }

func (f *family) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	if f.admit != nil {
		return f.admit(runs), nil
	}
	return f.Store.Admit(ctx, root, runs, limit)
}

func (f *family) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if s, ok := f.runs[id]; ok {
		return s, nil
	}
	if slices.Contains(f.gone, id) {
		return state.State{}, state.ErrDeleted
	}
	return f.Store.Load(ctx, id)
}

func (f *family) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	made, err := f.Store.Create(ctx, run)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created = append(f.created, run.State.ID)
	if f.ends != "" && len(f.created) == 1 {
		if _, err := f.Store.Abort(ctx, f.ends, state.Abort{Reason: "test"}, time.Hour); err != nil {
			f.t.Error(err)
		}
	}
	made.Noisy = made.Noisy || f.noisy
	return made, err
}

func (f *family) Signal(_ context.Context, id state.RunID, sig state.Signal, _ time.Duration) (state.Wake, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals[id] = append(f.signals[id], sig)
	return f.wake, f.takes[id]
}

func (f *family) DeletedOfBatch(context.Context, state.RunID) (state.DeletedBatch, error) {
	return state.DeletedBatch{Deleted: f.past}, nil
}

func (f *family) Abort(_ context.Context, id state.RunID, _ state.Abort, _ time.Duration) (state.Wake, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.aborted = append(f.aborted, id)
	return state.Wake{}, nil
}

func (f *family) PublishTurn(_ context.Context, t bus.Turn, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turns = append(f.turns, t)
	return nil
}

// finalize does what follows when a run waits or has ended.
func (f *family) finalize(s state.State) {
	f.t.Helper()
	finalizer := upkeep.NewFinalizer(f, f, upkeep.FinalizerConfig{
		Dispatch: dispatch.New(f, nil), Agents: f, Clock: &clock.Clock{}, RedeliveryDelay: time.Hour, ToolOutput: 1000, Log: slog.New(slog.DiscardHandler),
	})
	if err := finalizer.Finalize(f.t.Context(), s, 0, s.LogLen(), nil); err != nil {
		f.t.Fatal(err)
	}
}

const (
	parentID state.RunID = "run_01ARZ3NDEKTSV4RRFFQ69G5FA0"
	childID  state.RunID = "run_01ARZ3NDEKTSV4RRFFQ69G5FA1"
)

// submitted returns a run that was just submitted by a principal.
func (f *family) submitted(id state.RunID, by string) state.State {
	f.t.Helper()
	s := state.State{ID: id, Tenant: "acme", Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
	s, err := s.Move(state.Submitted, state.Entry{
		At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}, By: &state.By{Principal: by}, Requesters: []string{by},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// waiting returns a run that waits for n children.
func (f *family) waiting(n int) state.State {
	f.t.Helper()
	s := f.submitted(parentID, "ada")
	if _, err := f.Store.Create(f.t.Context(), state.NewRun{State: s}); err != nil {
		f.t.Fatal(err)
	}
	s.Status = state.Waiting
	for i := range n {
		s.Open = append(s.Open, state.OpenCall{
			ID: fmt.Sprint("c", i), Name: "helper", Arguments: `{"task":"go"}`, Needs: state.NeedChild, Child: childID.Plus(i),
		})
	}
	return s
}

// A run that asks for children while its tree is ending is aborted, and gets no results with which it could continue.
func TestEndingTreeTakesNoChildren(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	f.admit = func(runs []state.RunID) state.Admitted { return state.Admitted{Ended: true, Refused: runs} }
	f.finalize(f.waiting(3))
	if len(f.created) > 0 || len(f.signals) > 0 || !slices.Equal(f.aborted, []state.RunID{parentID}) {
		t.Errorf("created %v, signals %v, aborted %v; want the run aborted only", f.created, f.signals, f.aborted)
	}
}

// A run that is creating many children stops, and is aborted, soon after an abort of its root or of itself.
func TestAbortWhileChildrenAreCreated(t *testing.T) {
	t.Parallel()
	const rootID = state.RunID("run_01ARZ3NDEKTSV4RRFFQ69G5F00")
	for name, ends := range map[string]state.RunID{"root": rootID, "parent": parentID} {
		f := newFamily(t)
		if _, err := f.Store.Create(t.Context(), state.NewRun{State: f.submitted(rootID, "ada")}); err != nil {
			t.Fatal(err)
		}
		s := f.waiting(30)
		s.Parent = &state.Parent{RunID: rootID, CallID: "c", Depth: 1}
		f.ends = ends
		f.finalize(s)
		if len(f.created) == 0 || len(f.created) > 10 || !slices.Equal(f.aborted, []state.RunID{parentID}) {
			t.Errorf("abort of the %s: %d children created, aborted %v; want a few children, and the parent aborted", name, len(f.created), f.aborted)
		}
	}
}

// The first turn of a child run of a noisy tenant waits in the queue of noisy tenants.
func TestChildOfNoisyTenant(t *testing.T) {
	t.Parallel()
	for _, noisy := range []bool{false, true} {
		f := newFamily(t)
		f.noisy = noisy
		f.finalize(f.waiting(1))
		if len(f.turns) != 1 || f.turns[0].Run != childID || f.turns[0].Noisy != noisy || f.turns[0].Tenant != "acme" {
			t.Errorf("noisy %t: published %+v", noisy, f.turns)
		}
	}
}

// A child run that has ended before it is started again, because its parent was lost in between, answers again and
// gets no turn.
func TestEndedChildAnswersAgain(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	child := f.submitted(childID, "ada")
	child.Parent = &state.Parent{RunID: parentID, CallID: "c0", Depth: 1}
	child, err := child.Move(state.EndCompleted, state.Entry{At: state.At(time.Now()), Output: new("done")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Create(t.Context(), state.NewRun{State: child}); err != nil {
		t.Fatal(err)
	}
	f.finalize(f.waiting(1))
	if got := f.signals[parentID]; len(got) != 1 || got[0].Child == nil || got[0].Child.Content != "done" || got[0].Child.CallID != "c0" || len(f.turns) > 0 {
		t.Errorf("signals %+v, turns %+v; want the outcome only", got, f.turns)
	}
}

// The parent gets as much of an outcome as of any result, and the principals behind it: they may not approve in the
// parent what their requests led to.
func TestOutcomeForTheParent(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	child := f.submitted(childID, "ada")
	child.Parent = &state.Parent{RunID: parentID, CallID: "c0", Depth: 1}
	for range 600 { // more than a page of the log
		child = child.Append(state.Entry{Type: state.EntryReflect, At: state.At(time.Now())})
	}
	child = child.Append(state.Entry{Type: state.EntryTransition, At: state.At(time.Now()), Requesters: []string{"eve"}})
	child, err := child.Move(state.EndCompleted, state.Entry{At: state.At(time.Now()), Output: new(strings.Repeat("x", 5000))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Create(t.Context(), state.NewRun{State: child}); err != nil {
		t.Fatal(err)
	}
	f.finalize(child)
	got := f.signals[parentID]
	if len(got) != 1 || got[0].Child == nil {
		t.Fatalf("signals %+v, want the outcome", got)
	}
	if c := got[0].Child; len(c.Content) > 2000 || !slices.Equal(c.Requesters, []string{"ada", "eve"}) {
		t.Errorf("the outcome has %d bytes and the requesters %v, want some 1000 bytes, and ada and eve", len(c.Content), c.Requesters)
	}
}

// The dead letter of a poisoned turn says how often workers have tried it.
func TestDeadLetterCountsAttempts(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	run := f.submitted(childID, "ada")
	run.Poison, run.DeadLettered = &state.Poison{Attempts: 5}, true
	run, err := run.Move(state.EndPoisoned, state.Entry{At: state.At(time.Now()), Detail: "claimed 5 times without a commit"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	f.finalize(run)
	letters, err := f.DeadLetters(t.Context(), "acme", 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Attempts != 5 || letters[0].Run != childID || letters[0].Kind != bus.DeadPoisoned {
		t.Errorf("letters %+v, %v; want one with 5 attempts", letters, err)
	}
}

// The dead letter of a run that was deleted meanwhile does not stay: the deletion may have looked for it before.
func TestDeadLetterOfADeletedRun(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		f := newFamily(t)
		run := f.submitted(childID, "ada")
		run.Poison, run.DeadLettered = &state.Poison{Attempts: 5}, true
		run, err := run.Move(state.EndPoisoned, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Store.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		if deleted {
			f.gone = []state.RunID{childID}
		}
		f.finalize(run)
		if letters, err := f.DeadLetters(t.Context(), "acme", 0, 10); err != nil || (len(letters) == 0) != deleted {
			t.Errorf("deleted %t: letters %+v, %v", deleted, letters, err)
		}
	}
}

// Only agents can be called, not their drafts: the definition of a draft has another name than the draft.
func TestDraftIsNotCalled(t *testing.T) {
	t.Parallel()
	f := newFamilyOf(t, "draft")
	f.finalize(f.waiting(1))
	got := f.signals[parentID]
	if len(f.created) > 0 || len(got) != 1 || got[0].Child == nil || !got[0].Child.IsError || !strings.Contains(got[0].Child.Content, "draft") {
		t.Errorf("created %v, signals %+v; want an error as the result of the call", f.created, got)
	}
}

// A pending run of a batch starts when all runs before it have left its lane. A run that was skipped says nothing about
// those before it.
func TestLaneIsFree(t *testing.T) {
	t.Parallel()
	running := func(s *state.State) { s.Status = state.Running }
	ended := func(s *state.State) { s.Status = state.Completed }
	skipped := func(s *state.State) { s.Status, s.Batch.Skipped = state.Cancelled, true }
	asking := func(s *state.State) { s.Status, s.Batch.LeftLane = state.Waiting, true }
	type change = func(*state.State)
	for name, test := range map[string]struct {
		before []change
		starts bool
	}{
		"the only one":                {nil, true},
		"after a running one":         {[]change{running}, false},
		"after an ended one":          {[]change{ended}, true},
		"after one that asks":         {[]change{asking}, true},
		"after a skipped one":         {[]change{skipped}, true},
		"skipped, before it running":  {[]change{running, skipped}, false},
		"skipped, before it ended":    {[]change{ended, skipped}, true},
		"two skipped, before running": {[]change{running, skipped, skipped}, false},
		"two skipped, before ended":   {[]change{ended, skipped, skipped}, true},
	} {
		f := newFamily(t)
		f.runs = map[state.RunID]state.State{}
		var last state.State
		for i := range len(test.before) + 1 {
			last = f.submitted(childID.Plus(i), "ada")
			last.Batch = &state.Batch{Index: i, Size: len(test.before) + 1, MaxParallel: 1}
			if i < len(test.before) {
				test.before[i](&last)
			} else {
				last.Status, last.Batch.PendingInBatch = state.Waiting, true
			}
			f.runs[last.ID] = last
			if _, err := f.Store.Create(t.Context(), state.NewRun{State: last}); err != nil {
				t.Fatal(err)
			}
		}
		f.finalize(last)
		got := f.signals[last.ID]
		if (len(got) == 1 && got[0].Start) != test.starts || len(f.signals) > 1 {
			t.Errorf("%s: signals %+v, want the last run started: %t", name, f.signals, test.starts)
		}
	}
}
