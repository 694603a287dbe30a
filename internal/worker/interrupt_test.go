package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// interrupt does what a gateway does with a message that interrupts a run.
func (s *deployment) interrupt(id state.RunID, text string) {
	s.t.Helper()
	m := state.UserText(text)
	wake, err := s.store.Signal(s.t.Context(), id, state.Signal{ID: text, At: state.At(time.Now()), Message: &m, Mode: state.Interrupt, By: &state.By{Principal: "ann"}}, s.delay())
	if err == nil {
		err = dispatch.New(s.bus, nil).Interrupt(s.t.Context(), id, wake, "")
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// reasons returns the reasons of a run's transitions.
func (s *deployment) reasons(id state.RunID) (all []state.Reason) {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range log {
		if e.Reason != "" {
			all = append(all, e.Reason)
		}
	}
	return all
}

// hour is the delay of a response for which these tests never wait.
const hour = model.Duration(time.Hour)

// A message interrupts the work of a run, and the model reads it within the time that the contract gives.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	approved := agent.Tool{Name: "block", Approval: "always"}
	client := agent.Tool{Name: "pick", Kind: toolspec.Client, Schema: []byte(`{"type":"object"}`)}
	cases := map[string]struct {
		tools     []agent.Tool
		responses []model.Scripted
		ready     state.Reason // the reason for which the run waits; empty if a call is in flight
		tool      bool
		want      []string // lines of the transcript
	}{
		"a model call": {nil, []model.Scripted{{Text: "late", Delay: hour}}, "", false, []string{"user: stop"}},
		"a tool": {
			[]agent.Tool{{Name: "block"}}, []model.Scripted{call("block", "c1")}, "", true,
			[]string{"assistant: c1", "tool: Interrupted mid-execution", "user: stop"},
		},
		"an approval": {
			[]agent.Tool{approved}, []model.Scripted{call("block", "c1")}, state.WaitingApproval, false,
			[]string{"assistant: c1", "tool: Denied: interrupted", "user: stop"},
		},
		"a client tool": {
			[]agent.Tool{client}, []model.Scripted{call("pick", "c1")}, state.WaitingClientTool, false,
			[]string{"assistant: c1", "tool: Interrupted by user", "user: stop"},
		},
		"a retry": {nil, []model.Scripted{{Error: "overloaded", RetryAfter: hour}}, state.WaitingSchedule, false, []string{"user: stop"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				blocks := newBlocking()
				s.tools["block"] = blocks
				s.work(s.config())
				id := s.submit(state.Limits{}, c.tools, append(c.responses, model.Scripted{Text: "stopped"})...)
				switch {
				case c.ready != "":
					s.awaitReason(id, c.ready)
				case c.tool:
					<-blocks.started
				default:
					s.await(id, "a model call", func(st state.State) bool { return st.Status == state.Running })
					time.Sleep(time.Second) // the bubble's clock
				}
				began := time.Now()
				s.interrupt(id, "stop")
				for _, sig := range []state.Signal{
					{ID: "late", Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}},
					{ID: "later", ToolResults: []state.SignalResult{{CallID: "c1", Content: "picked"}}},
				} {
					var refused *state.NotWaitingError
					if _, err := s.store.Signal(t.Context(), id, sig, s.delay()); !errors.As(err, &refused) {
						t.Errorf("a late decision returns %v, want it refused", err)
					}
				}
				s.awaitReason(id, state.EndCompleted)
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("the next model call came after %s", took)
				}
				want := append([]string{"user: hello"}, c.want...)
				if got := s.transcript(id); !slices.Equal(got, append(want, "assistant: stopped")) {
					t.Errorf("the transcript is\n%s", strings.Join(got, "\n"))
				}
				if n := blocks.calls.Load(); n > 1 {
					t.Errorf("the tool was called %d times", n)
				}
			})
		})
	}
}

// If the bus message is lost, the next lease renewal finds the interrupt. A stale bus message interrupts
// nothing.
func TestInterruptWithoutTheBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.work(s.config())
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "late", Delay: hour}, model.Scripted{Text: "stopped", Delay: model.Duration(time.Minute)})
		s.await(id, "a model call", func(st state.State) bool { return st.Status == state.Running })
		m := state.UserText("stop")
		wake, err := s.store.Signal(t.Context(), id, state.Signal{ID: "stop", Message: &m, Mode: state.Interrupt}, s.delay())
		if err != nil {
			t.Fatal(err)
		}
		running := s.await(id, "the next turn", func(st state.State) bool { return st.Version == 2 && st.Status == state.Running })
		wake.Version = running.Version
		if err := dispatch.New(s.bus, nil).Interrupt(t.Context(), id, wake, ""); err != nil {
			t.Fatal(err)
		}
		s.awaitReason(id, state.EndCompleted)
		if got := s.reasons(id); !slices.Equal(got, []state.Reason{state.Submitted, state.Interrupted, state.EndCompleted}) {
			t.Errorf("the run's transitions are %v", got)
		}
	})
}

// A child run started by a call of an interrupted turn is ended, and its parent does not wait for it.
func TestInterruptWhileAChildWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found", Delay: hour}}}})
		s.work(s.config())
		id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("a", "b"), model.Scripted{Text: "done"})
		s.awaitReason(id, state.WaitingChild)
		s.await(id, "two children", func(state.State) bool {
			children := s.children(id)
			return len(children) == 2 && children[0].Status == state.Running && children[1].Status == state.Running
		})
		s.interrupt(id, "never mind")
		s.awaitReason(id, state.EndCompleted)
		for _, c := range s.children(id) {
			s.awaitReason(c.ID, state.EndAbortedStreaming)
		}
	})
}

// A child that is created after its parent was interrupted ends without effects.
func TestOrphanOfAnInterrupt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		var paid atomic.Int32
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			paid.Add(1)
			return tool.Result{Content: "paid"}, nil
		})
		s.define(agent.Definition{Name: "researcher", Tools: []agent.Tool{{Name: "pay"}}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("pay", "p1"), {Text: "found"}}}})
		o := &orphan{Store: s.store, resumed: make(chan struct{})}
		created := make(chan struct{})
		id := s.create(state.Limits{}, []agent.Tool{researcher}, delegation("a"), model.Scripted{Text: "waits", Delay: hour})
		o.before = func() {
			s.work(s.config()) // another worker
			s.interrupt(id, "never mind")
			s.await(id, "the next turn", func(st state.State) bool {
				return st.Transition.Reason == state.Interrupted && st.Status == state.Running
			})
			close(created)
		}
		s.workOn(o, s.config())
		s.start(id)
		<-created
		time.Sleep(time.Minute) // the bubble's clock
		for _, c := range s.children(id) {
			if c.Status != state.Cancelled || paid.Load() > 0 {
				t.Errorf("the child is %s (%s) and made %d payments", c.Status, c.Transition.Reason, paid.Load())
			}
		}
		s.abort(id)
		s.awaitReason(id, state.EndAbortedStreaming)
	})
}
