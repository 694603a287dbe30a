package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// define stores an agent in addition to the one that submit creates.
func (s *deployment) define(def agent.Definition) {
	s.t.Helper()
	b, err := json.Marshal(def)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.PutAgent(s.t.Context(), state.DefaultTenant, def.Name, b, false); err != nil {
		s.t.Fatal(err)
	}
}

func (s *deployment) children(id state.RunID) []state.State {
	s.t.Helper()
	page, err := s.store.List(s.t.Context(), state.Filter{Parent: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Runs
}

var researcher = agent.Tool{Name: "researcher", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "researcher"})}

func delegation(tasks ...string) model.Scripted {
	var s model.Scripted
	for _, task := range tasks {
		s.ToolCalls = append(s.ToolCalls, model.ScriptedCall{Name: "researcher", Arguments: json.RawMessage(fmt.Sprintf(`{"task":%q}`, task))})
	}
	return s
}

// Siblings run in parallel while no worker holds the parent. The parent receives their results and usage (I6,
// D11).
func TestDelegation(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	both := make(chan struct{})
	var under atomic.Int32
	s.tools["meet"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		// Each sibling continues only after both have started.
		if under.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
			return tool.Result{Content: "met"}, nil
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	})
	s.define(agent.Definition{
		Name: "researcher", Instructions: "search", Tools: []agent.Tool{{Name: "meet"}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{
			{ToolCalls: []model.ScriptedCall{{Name: "meet"}}}, {Text: "found", Usage: &model.ScriptedUsage{OutputTokens: 7}},
		}},
	})
	s.work(s.config())
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("a", "b"), model.Scripted{Text: "done"})
	st := s.awaitReason(id, state.EndCompleted)
	children := s.children(id)
	if len(children) != 2 {
		t.Fatalf("%d children, want 2", len(children))
	}
	for _, c := range children {
		if c.Status != state.Completed || c.Parent.RunID != id || c.Parent.Depth != 1 {
			t.Errorf("child %s is %s, parent %+v", c.ID, c.Status, c.Parent)
		}
	}
	if st.Usage.OutputTokens != 14 || st.Usage.ModelCalls != 6 {
		t.Errorf("usage = %+v, want it to include the children's", st.Usage)
	}
	for _, m := range s.view(id) {
		if m.Role == state.RoleTool && (m.Parts[0].Content != "found" || m.Parts[0].IsError) {
			t.Errorf("result = %+v", m.Parts[0])
		}
	}
}

func (s *deployment) view(id state.RunID) []state.Message {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return state.View(log)
}

// cramped is a store that has no capacity for any child run.
type cramped struct{ state.Store }

func (s cramped) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	if run.State.Parent != nil {
		return state.Created{}, &state.TooLargeError{Bytes: 2 << 20, Limit: 1 << 20, Remedy: "keep the task smaller"}
	}
	return s.Store.Create(ctx, run)
}

// A child that can never be stored becomes an error result of the parent's call. The parent does not wait for
// it.
func TestDelegationTooLarge(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found"}}}})
	s.store = cramped{s.store}
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("x"), model.Scripted{Text: "done"})
	s.awaitReason(id, state.EndCompleted)
	for _, m := range s.view(id) {
		if m.Role == state.RoleTool && !strings.Contains(m.Parts[0].Content, `The agent "researcher" cannot be started`) {
			t.Errorf("result = %q", m.Parts[0].Content)
		}
	}
}

// A delegation to an unknown agent, or to one that fails, becomes an error result of the parent's call (K7).
func TestDelegationFails(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "no", Stop: model.StopRefusal}}}})
	s.work(s.config())
	s.define(agent.Definition{Name: "broken", Loop: agent.Loop{Type: "gone"}, Model: agent.Model{Provider: "scripted"}})
	nobody := agent.Tool{Name: "nobody", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "nobody"})}
	broken := agent.Tool{Name: "broken", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "broken"})}
	id := s.submit(state.Limits{}, []agent.Tool{researcher, nobody, broken},
		model.Scripted{ToolCalls: []model.ScriptedCall{
			{Name: "researcher", Arguments: json.RawMessage(`{"task":"x"}`)}, {Name: "nobody", Arguments: json.RawMessage(`{"task":"x"}`)},
			{Name: "broken", Arguments: json.RawMessage(`{"task":"x"}`)},
		}}, model.Scripted{Text: "done"})
	s.awaitReason(id, state.EndCompleted)
	var got []string
	for _, m := range s.view(id) {
		if m.Role == state.RoleTool {
			got = append(got, m.Parts[0].Content)
		}
	}
	if len(got) != 3 || !strings.Contains(got[2], `The agent "broken" cannot be started`) || !strings.Contains(got[0], "ended incomplete: refused") || !strings.HasPrefix(got[1], `There is no agent "nobody". `) {
		t.Errorf("results = %q", got)
	}
}

// An abort reaches all descendants in any state (I7).
func TestAbortReachesDescendants(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	entered := make(chan struct{}, 1)
	s.tools["hang"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	})
	leaf := agent.Definition{
		Name: "leaf", Tools: []agent.Tool{{Name: "hang"}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{ToolCalls: []model.ScriptedCall{{Name: "hang"}}}}},
	}
	s.define(leaf)
	s.define(agent.Definition{
		Name: "researcher", Tools: []agent.Tool{{Name: "leaf", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "leaf"})}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{ToolCalls: []model.ScriptedCall{{Name: "leaf", Arguments: json.RawMessage(`{"task":"x"}`)}}}}},
	})
	s.work(s.config())
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("x"))
	<-entered
	s.abort(id)
	s.awaitReason(id, state.EndAbortedWaiting)
	child := s.children(id)[0]
	s.awaitReason(child.ID, state.EndAbortedWaiting)
	s.awaitReason(s.children(child.ID)[0].ID, state.EndAbortedTools)
}

// lame is a store whose worker dies at a chosen point: between the commit of a parent and the start of its
// children, or between the end of a child and the signal to its parent. It reports the lost write as done, and
// a replica that takes over does not have it.
type lame struct {
	state.Store
	failCreate, failSignal atomic.Int32
	loseCreate, loseSignal atomic.Int32
}

var errLame = errors.New("the worker died here")

func (l *lame) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	if l.failCreate.Add(-1) >= 0 {
		return state.Created{}, errLame
	}
	if run.State.Parent != nil && l.loseCreate.Add(-1) >= 0 {
		return state.Created{State: run.State}, nil
	}
	return l.Store.Create(ctx, run)
}

func (l *lame) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	if l.failSignal.Add(-1) >= 0 {
		return state.Wake{}, errLame
	}
	if (sig.Child != nil || sig.Start) && l.loseSignal.Add(-1) >= 0 {
		return state.Wake{}, nil
	}
	return l.Store.Signal(ctx, id, sig, delay)
}

// The sweeper completes what a crash after the commit left undone (I2).
func TestDelegationSurvivesCrash(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found"}}}})
	store := &lame{Store: s.store}
	store.failCreate.Store(1)
	store.failSignal.Store(1)
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("x", "y"), model.Scripted{Text: "done"})
	s.awaitReason(id, state.EndCompleted)
	if n := len(s.children(id)); n != 2 {
		t.Errorf("%d children, want 2", n)
	}
}

// A failover to an older replica that lost the start of a child, or the signal of a child, but kept the record
// of it leaves no run waiting forever (I2).
func TestDelegationSurvivesFailover(t *testing.T) {
	t.Parallel()
	// In a bubble, the sweeper starts the child before a worker stops retrying the child's message.
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found"}}}})
		store := &lame{Store: s.store}
		store.loseCreate.Store(1)
		store.loseSignal.Store(1)
		s.workOn(store, s.config())
		id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("x", "y"), model.Scripted{Text: "done"})
		s.awaitReason(id, state.EndCompleted)
		if n := len(s.children(id)); n != 2 {
			t.Errorf("%d children, want 2", n)
		}
	})
}

// An asynchronous tool may answer before the turn that called it has ended, or long after. No worker waits in
// between (I6).
func TestAsyncTool(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		s := newDeployment(t)
		answer := func(id state.RunID, call string) {
			s.signal(id, state.Signal{ID: "s", ToolResults: []state.SignalResult{{CallID: call, Content: "here"}}})
		}
		var calls atomic.Int32
		s.tools["later"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			calls.Add(1)
			if early {
				answer(c.Run, c.ID)
			}
			return tool.Result{Pending: true}, nil
		})
		s.work(s.config())
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "later", Async: true}},
			model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "later", ID: "c1"}}}, model.Scripted{Text: "done"})
		if !early {
			s.awaitReason(id, state.WaitingTool)
			answer(id, "c1")
		}
		s.awaitReason(id, state.EndCompleted)
		if got := s.view(id)[2].Parts[0].Content; got != "here" || calls.Load() != 1 {
			t.Errorf("early %t: result %q after %d calls", early, got, calls.Load())
		}
	}
}

// Images in a result reach the model, and a broken image is replaced by a note. A worker that resumes the turn
// from the journal sends the same.
func TestToolImages(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	pixel := state.Image{MediaType: "image/png", Data: "iVBORw0="}
	s.tools["look"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Content: "seen", Images: []state.Image{pixel, {Data: "not base64", MediaType: "image/png"}}}, nil
	})
	s.tools["dies"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "alive"}, nil })
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "look", Concurrency: "serial"}, {Name: "dies", Concurrency: "serial"}, {Name: "ask", Kind: toolspec.Client, Schema: json.RawMessage(`{"type":"object"}`)}},
		model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "look", ID: "c1"}, {Name: "dies", ID: "c2"}, {Name: "ask", ID: "c3"}}}, model.Scripted{Text: "done"})
	s.awaitReason(id, state.WaitingClientTool)
	s.signal(id, state.Signal{ID: "s", ToolResults: []state.SignalResult{{CallID: "c3", Content: "", Images: []state.Image{{URL: "https://example.com/a.png"}}}}})
	s.awaitReason(id, state.EndCompleted)
	view := s.view(id)
	if p := view[2].Parts[0]; !gocmp.Equal(p.Images, []state.Image{pixel}) || p.Content != "seen\n[image 2 left out: the image's data is not base64: encode it in base64, without a prefix such as data:]" {
		t.Errorf("result = %+v", p)
	}
	if p := view[4].Parts[0]; len(p.Images) != 1 || p.Images[0].URL != "https://example.com/a.png" {
		t.Errorf("result of the client = %+v", p)
	}
}

// A scripted model is called with its own call count, also as a fallback (A12).
func TestFallbackAnswers(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{
		Provider: "scripted", Responses: []model.Scripted{{Text: "half a", Error: model.Auth}},
		Fallback: []agent.Model{{Provider: "scripted", Responses: []model.Scripted{{Error: model.Auth}}}, {Provider: "scripted", Responses: []model.Scripted{{Text: "third time lucky"}}}},
	}})
	st := s.awaitReason(id, state.EndCompleted)
	if *st.Output != "third time lucky" || st.Turn != 1 {
		t.Errorf("output %q in turn %d", *st.Output, st.Turn)
	}
	for _, m := range s.view(id) {
		if strings.Contains(m.Text(), "half a") {
			t.Errorf("the transcript has %q", m.Text())
		}
	}
}

// The result of a child run has the same size limit as any other: the signal that carries it must fit into
// every store, or the parent waits forever (I2).
func TestDelegationIsBounded(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: strings.Repeat("x", 5000)}}}})
	cfg := s.config()
	cfg.ToolOutput = 1000
	s.work(cfg)
	id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("a"), model.Scripted{Text: "done"})
	s.awaitReason(id, state.EndCompleted)
	want := "tool: " + strings.Repeat("x", 1000) + "\n[output truncated: 1000 of 5000 bytes]"
	if got := s.transcript(id)[2]; got != want {
		t.Errorf("the result has %d bytes: %.60s … %s", len(got), got, got[max(0, len(got)-60):])
	}
}
