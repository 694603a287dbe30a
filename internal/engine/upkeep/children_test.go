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

	mu      sync.Mutex
	signals map[state.RunID][]state.Signal
	aborted []state.RunID
	turns   []bus.Turn
	created []state.RunID
}

func newFamily(t *testing.T) *family {
	t.Helper()
	def := agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "unused"}}},
		Tools: []agent.Tool{{Name: "helper", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "a"})}},
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := &family{Store: memstore.New(memstore.Config{}), Bus: membus.New(), t: t, agent: a, signals: map[state.RunID][]state.Signal{}}
	if _, err := f.PutAgent(t.Context(), "acme", "a", []byte("{}"), false); err != nil {
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

func (f *family) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	made, err := f.Store.Create(ctx, run)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created = append(f.created, run.State.ID)
	made.Noisy = made.Noisy || f.noisy
	return made, err
}

func (f *family) Signal(_ context.Context, id state.RunID, sig state.Signal, _ time.Duration) (state.Wake, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals[id] = append(f.signals[id], sig)
	return state.Wake{}, nil
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
