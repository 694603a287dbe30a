package looptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// fataler is the part of testing.T and rapid.T that checks need.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

var epoch = state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// run is one run of a loop, with the test acting as the worker.
type run struct {
	t     fataler
	agent *agent.Agent
	bind  loop.Factory
	loop  loop.Loop

	s         state.State // as last decided
	committed state.State // as last committed
	was       string      // the encoding of committed at that time
	journal   int         // entries of s.Log that would survive a crash
	effect    loop.Effect
	now       state.Time
	shadow    *shadow // nil without a checkpoint
}

// compile compiles a definition, and returns the agent with the factory of its loop.
func compile(t testing.TB, registry loop.Registry, def agent.Definition) (*agent.Agent, loop.Factory) {
	t.Helper()
	if def.Name == "" {
		def.Name = "test"
	}
	if def.Model.Provider == "" {
		def.Model.Provider = "scripted"
		def.Model.Responses = []model.Scripted{{Text: "unused"}}
	}
	a, err := agent.Builtin(registry.Names()...).Compile(def, 1)
	if err != nil {
		t.Fatalf("compile agent: %v", err)
	}
	return a, registry[a.Loop.Type]
}

// begin submits a run.
func begin(t fataler, a *agent.Agent, bind loop.Factory, limits state.Limits, input string) *run {
	t.Helper()
	r := &run{t: t, agent: a, bind: bind, loop: bind(a), now: epoch}
	s := state.State{
		ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: a.Name, AgentVersion: 1, Loop: a.Loop.Type, Limits: a.Tighten(limits, epoch),
	}
	var messages []state.Message
	if a.Instructions != "" {
		messages = append(messages, state.Message{ID: "msg_1_s", Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: a.Instructions}}})
	}
	said := state.UserText(input)
	said.ID = "msg_1_0"
	s, err := s.Move(state.Submitted, state.Entry{At: epoch, Messages: append(messages, said)})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	r.s, r.committed, r.was, r.journal = s, s, encode(t, s, 0), len(s.Log)
	return r
}

// at advances the time by a second and returns it.
func (r *run) at() state.Time {
	r.now = state.At(r.now.Add(time.Second))
	return r.now
}

// step feeds one event and checks the decision. Some of the checks: the arguments stay unchanged, equal arguments give
// equal results on any worker, another event after the same state does not change an earlier decision, a log that
// begins with a checkpoint leads to the same (see shadow), and a turn that ends has made exactly one transition.
func (r *run) step(ev loop.Event) {
	r.t.Helper()
	from := len(r.committed.Log) // the commit checks the earlier entries
	before, happened := encode(r.t, r.s, from), fmt.Sprintf("%+v", ev)
	d := r.loop.Step(r.s, ev)
	if d.Next == nil {
		r.t.Fatalf("the decision about %T has no next state", ev)
	}
	decided := encode(r.t, *d.Next, from)
	again := r.bind(r.agent).Step(r.s, ev)
	if diff := cmp.Diff(decided, encode(r.t, *again.Next, from)); diff != "" {
		r.t.Fatalf("after %T equal arguments gave different states (A2):\n%s", ev, diff)
	}
	if diff := cmp.Diff(d.Effect, again.Effect); diff != "" {
		r.t.Fatalf("after %T equal arguments gave different effects (A2):\n%s", ev, diff)
	}
	r.loop.Step(r.s, r.instead())
	if diff := cmp.Diff(decided, encode(r.t, *d.Next, from)); diff != "" {
		r.t.Fatalf("another event after the same state changed what %T had led to (A2):\n%s", ev, diff)
	}
	if diff := cmp.Diff(before, encode(r.t, r.s, from)); diff != "" {
		r.t.Fatalf("Step changed its state at %T (A2):\n%s", ev, diff)
	}
	if diff := cmp.Diff(happened, fmt.Sprintf("%+v", ev)); diff != "" {
		r.t.Fatalf("Step changed its event %T (A2):\n%s", ev, diff)
	}
	r.follow(ev, d)
	r.s, r.effect = *d.Next, d.Effect
	switch effect := d.Effect.(type) {
	case nil:
		r.commit()
	case loop.CallModel:
		paired(r.t, effect.Messages)
	case loop.SwitchAgent:
	case loop.RunTools, loop.RunHooks:
		r.journal = len(r.s.Log) // the worker journals the response before it starts anything
	case loop.GiveUp:
		r.t.Fatalf("after %T the loop cannot decide: %v", ev, effect.Err)
	default:
		r.t.Fatalf("unknown effect %T", effect)
	}
	if d.Effect != nil && r.s.Version != r.committed.Version {
		r.t.Fatalf("the turn has made a transition (%s) and continues with %T", r.s.Transition.Reason, d.Effect)
	}
}

// instead returns an event that may occur at any time instead of another.
func (r *run) instead() loop.Event {
	if r.effect == nil {
		return loop.TurnBegan{At: r.now, Worker: "other", Attempt: 7, Abort: &state.Abort{Reason: "instead"}}
	}
	_, started := r.effect.(loop.RunTools)
	return loop.Aborted{At: r.now, Cause: loop.ByUser, Reason: "instead", Started: started}
}

// commit checks the state in which a turn ends.
func (r *run) commit() {
	r.t.Helper()
	s := r.s
	if s.Version != r.committed.Version+1 {
		r.t.Fatalf("the turn ended at version %d, after version %d", s.Version, r.committed.Version)
	}
	if to, ok := s.Transition.Reason.Status(); !ok || to != s.Status {
		r.t.Fatalf("the turn ended %s for %q, which leads to %q", s.Status, s.Transition.Reason, to)
	}
	if _, err := r.committed.Move(s.Transition.Reason, state.Entry{}); err != nil {
		r.t.Fatalf("the turn made a move that the machine does not allow: %v", err)
	}
	if diff := cmp.Diff(r.was, encode(r.t, prefix(r.committed, s.Log), 0)); diff != "" {
		r.t.Fatalf("the turn changed what was committed before (A2):\n%s", diff)
	}
	if n := transitions(s.Log[len(r.committed.Log):]); n != 1 {
		r.t.Fatalf("the log has %d transitions in one turn", n)
	}
	if diff := cmp.Diff(fixed(r.t, r.committed), fixed(r.t, s)); diff != "" {
		r.t.Fatalf("the turn changed fields that are fixed at submission and stored once:\n%s", diff)
	}
	if n := s.Turn - s.TurnBase; n > s.Limits.MaxTurns {
		r.t.Fatalf("the run has taken %d turns, its limit is %d (D3)", n, s.Limits.MaxTurns)
	}
	for i, e := range s.Log {
		if e.Seq != int64(i+1) {
			r.t.Fatalf("entry %d has number %d (I9)", i+1, e.Seq)
		}
	}
	if got, want := openIDs(s), unanswered(s.Log); got != want {
		r.t.Fatalf("open calls are %s, the log has %s", got, want)
	}
	if m := AnsweredUnchecked(s.Log); m != "" && len(r.agent.Hooks(hook.Input)) > 0 {
		r.t.Fatalf("the model answered %s, which no input hook has seen", m)
	}
	if s.Status == state.Waiting && s.Waiting == nil {
		r.t.Fatalf("the run waits for nothing (I2)")
	}
	if s.Status == state.Waiting && s.Due().IsZero() && len(s.Awaits()) == 0 {
		r.t.Fatalf("the run waits (%s), and nothing can wake it (I2)", s.Waiting.Reason)
	}
	schema := len(s.OutputSchema)+len(r.agent.OutputSchema) > 0
	if value := len(s.StructuredOutput) > 0; schema && s.Status == state.Completed && !value || value && (!schema || !s.Status.Terminal()) {
		r.t.Fatalf("the run is %s with the value %q, and has a schema: %t (D8)", s.Status, s.StructuredOutput, schema)
	}
	if s.Status.Terminal() {
		paired(r.t, state.View(s.Log))
	}
	b, err := state.EncodeState(s)
	if err != nil {
		r.t.Fatalf("encode state: %v", err)
	}
	back, err := state.DecodeState(b)
	if err != nil {
		r.t.Fatalf("decode state: %v", err)
	}
	back.Log = s.Log
	if diff := cmp.Diff(encode(r.t, s, len(s.Log)), encode(r.t, back, len(s.Log))); diff != "" {
		r.t.Fatalf("the state does not survive its codec:\n%s", diff)
	}
	r.s, r.committed, r.was, r.journal = back, back, encode(r.t, back, 0), len(back.Log)
}

// AnsweredUnchecked returns the id of a user message that the model answered before the input hooks
// saw it, or "".
func AnsweredUnchecked(log []state.Entry) string {
	unchecked := ""
	for _, e := range log {
		switch {
		case e.Type == state.EntryChecked:
			unchecked = ""
		case e.Type == state.EntryModel && unchecked != "":
			return unchecked
		case e.Type == state.EntryCompacted:
		default:
			for _, m := range e.Messages {
				if m.Role == state.RoleUser && !m.Synthetic && !m.Undelivered {
					unchecked = m.ID
				}
			}
		}
	}
	return ""
}

// crash returns to the state that the store has: the committed header with the journaled entries folded into
// it.
func (r *run) crash() {
	journaled := r.s.Log[len(r.committed.Log):r.journal]
	r.s = r.committed
	for _, e := range journaled {
		if e.Type == state.EntryCheckpoint {
			r.s = withCheckpoint(r.s, e)
		} else {
			r.s = r.s.Append(e)
		}
	}
	if r.shadow != nil {
		r.shadow.lose(journaled)
	}
}

// paired checks I5: every call has exactly one result, directly after it and in order, and no result is without
// its call.
func paired(t fataler, messages []state.Message) {
	t.Helper()
	for i := 0; i < len(messages); i++ {
		if messages[i].Role == state.RoleTool {
			t.Fatalf("message %d is a result without its call (I5): %s", i, sketch(messages))
		}
		calls := messages[i].Calls()
		for j, c := range calls {
			k := i + 1 + j
			if k >= len(messages) || messages[k].Role != state.RoleTool || messages[k].Parts[0].CallID != c.ID {
				t.Fatalf("call %s has no result after it (I5): %s", c.ID, sketch(messages))
			}
		}
		i += len(calls)
	}
}

// prefix returns s with as many entries of log as s has.
func prefix(s state.State, log []state.Entry) state.State {
	s.Log = log[:min(len(s.Log), len(log))]
	return s
}

// transitions returns the number of entries that changed the run's status.
func transitions(log []state.Entry) int {
	n := 0
	for _, e := range log {
		if _, moves := e.Reason.Status(); moves {
			n++
		}
	}
	return n
}

func openIDs(s state.State) string {
	var ids []string
	for _, o := range s.Open {
		ids = append(ids, o.ID)
	}
	return fmt.Sprint(ids)
}

// unanswered returns the calls of the last response that have no result.
func unanswered(log []state.Entry) string {
	var ids []string
	done, withdrawn := map[string]bool{}, map[string]bool{}
	for i := len(log) - 1; i >= 0; i-- {
		switch e := log[i]; e.Type {
		case state.EntryTombstoned:
			for _, id := range e.MessageIDs {
				withdrawn[id] = true
			}
		case state.EntryTool, state.EntryReused:
			done[e.CallID] = done[e.CallID] || !withdrawn[e.Message.ID]
		case state.EntryModel:
			if withdrawn[e.Message.ID] {
				return fmt.Sprint(ids)
			}
			for _, c := range e.Message.Calls() {
				if !done[c.ID] {
					ids = append(ids, c.ID)
				}
			}
			return fmt.Sprint(ids)
		default:
		}
	}
	return fmt.Sprint(ids)
}

// fixed returns the encoded part of a state that is fixed at submission.
func fixed(t fataler, s state.State) string {
	t.Helper()
	b, _, err := state.EncodeHeader(s.Formatted(state.Format))
	if err != nil {
		t.Fatalf("encode header: %v", err)
	}
	return string(b)
}

// encode returns a state, with its log after the first `from` entries, as text.
func encode(t fataler, s state.State, from int) string {
	t.Helper()
	b, err := state.EncodeState(s)
	if err != nil {
		t.Fatalf("encode state: %v", err)
	}
	for _, e := range s.Log[min(from, len(s.Log)):] {
		line, err := state.EncodeEntry(&e)
		if err != nil {
			t.Fatalf("encode entry: %v", err)
		}
		b = append(append(b, '\n'), line...)
	}
	return string(b)
}

// sketch describes a history in one line.
func sketch(messages []state.Message) string {
	var out string
	for _, m := range messages {
		out += string(m.Role)
		for _, p := range m.Parts {
			switch p.Type {
			case state.PartToolCall:
				out += "→" + p.ID
			case state.PartToolResult:
				out += "←" + p.CallID
			default:
			}
		}
		out += " "
	}
	return out
}
