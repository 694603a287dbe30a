package looptest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// patience is the number of events after which models answer, tools succeed and people approve. From then on a
// run must end.
const patience = 60

// longest is the maximum number of events in a walk; a longer run counts as endless.
const longest = 600

// Exercise walks the loop of each agent through random histories, with random failures of models, tools and hooks,
// random answers of people, aborts and crashes. It checks the rules of every loop, for example that arguments are
// never changed, equal arguments give equal results, each turn makes one transition that the table has, max_turns
// holds, and every run ends. The labels of the rules in the errors are those of docs/reference.
//
// It makes as many walks for each agent as -rapid.checks says, logs the transitions that the loops made, and returns
// the number of each transition, by loop.
func Exercise(t *testing.T, registry loop.Registry, definitions ...agent.Definition) map[string]map[state.Reason]int {
	t.Helper()
	met := map[string]map[state.Reason]int{}
	for i, def := range definitions {
		a, bind := compile(t, registry, def)
		seen := met[a.Loop.Type]
		if seen == nil {
			seen = map[state.Reason]int{}
			met[a.Loop.Type] = seen
		}
		t.Run(fmt.Sprintf("%d_%s", i+1, a.Loop.Type), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				for _, row := range state.Audit(wander(rt, rt, a, bind)) {
					seen[row.Reason]++
				}
			})
		})
	}
	t.Logf("moves that the walks made:\n%s", reached(met))
	return met
}

// wander takes one run through a random history and returns its log.
func wander(t fataler, rt *rapid.T, a *agent.Agent, bind loop.Factory) []state.Entry {
	t.Helper()
	limits := rapid.SampledFrom([]state.Limits{
		{}, {MaxTurns: 3}, {OutputTokens: 60}, {CostUSD: 3000}, {WaitMS: 60_000}, {DeadlineAt: state.At(epoch.Add(50 * time.Second))},
	}).Draw(rt, "limits")
	w := &walk{run: begin(t, a, bind, limits, "hello"), rt: rt, often: rapid.SampledFrom([]string{"", "crash", "again", "tool fails", "model fails"}).Draw(rt, "often")}
	w.aborted = w.chance("abort", 12)
	w.start(nil)
	for !w.over() {
		if w.steps++; w.steps > longest {
			t.Fatalf("the run does not end: it is %s (%s) after %d events (I2)", w.s.Status, w.s.Transition.Reason, w.steps)
		}
		w.next()
	}
	return w.s.Log
}

// reached returns a table with the number of each transition: a row for each reason, in the order of the
// machine, and a column for each loop.
func reached(met map[string]map[state.Reason]int) string {
	var b strings.Builder
	loops := slices.Sorted(maps.Keys(met))
	fmt.Fprintf(&b, "%-28s", "")
	for _, name := range loops {
		fmt.Fprintf(&b, "%14s", name)
	}
	for _, reason := range state.Reasons() {
		fmt.Fprintf(&b, "\n%-28s", reason)
		for _, name := range loops {
			if n := met[name][reason]; n > 0 {
				fmt.Fprintf(&b, "%14d", n)
			} else {
				fmt.Fprintf(&b, "%14s", "-")
			}
		}
	}
	return b.String()
}

// walk is one random history.
type walk struct {
	*run

	rt        *rapid.T
	often     string // what this walk does every other time
	steps     int
	attempt   int
	continued bool
	aborted   bool

	last    []state.Part   // calls that the model may repeat
	signals []state.Signal // of the turn in flight, for its next attempt
	started []string
	results []loop.ToolResult
}

func (w *walk) kind() bool { return w.steps > patience }

func (w *walk) chance(label string, oneIn int) bool {
	if label == w.often {
		oneIn = 2
	}
	// The condition is a value in the middle: rapid draws small ones more often, and shrinks to them.
	return !w.kind() && rapid.IntRange(1, oneIn).Draw(w.rt, label) == (oneIn+2)/2
}

func (w *walk) over() bool {
	if w.effect != nil || !w.s.Status.Terminal() {
		return false
	}
	return w.continued || !w.chance("continued", 4)
}

// start begins a turn.
func (w *walk) start(signals []state.Signal) {
	w.attempt++
	w.signals = signals
	if w.attempt == 1 && !w.aborted && w.chance("checkpoint", 3) {
		w.checkpoint()
	}
	ev := loop.TurnBegan{At: w.at(), Worker: "w", Attempt: w.attempt, Signals: signals, Results: w.results, Started: w.started, Poisoned: w.attempt > 5}
	if w.aborted {
		ev.Abort = &state.Abort{Reason: "enough"}
	}
	w.feed(ev)
}

// feed is step, and resets the attempt when a turn has ended.
func (w *walk) feed(ev loop.Event) {
	w.step(ev)
	if w.effect == nil {
		w.attempt, w.started, w.results, w.signals = 0, nil, nil, nil
	}
}

// die simulates the loss of a worker in the middle of a turn.
func (w *walk) die() {
	w.crash()
	w.start(w.signals)
}

func (w *walk) next() {
	switch effect := w.effect.(type) {
	case loop.CallModel:
		w.answerModel(effect)
	case loop.RunTools:
		w.answerTools(effect)
	case loop.RunHooks:
		w.answerHooks(effect)
	case loop.SwitchAgent:
		w.find(effect)
	default:
		w.between()
	}
}

// between chooses an event for a run that no worker executes.
func (w *walk) between() {
	said := state.UserText("by the way")
	switch {
	case w.s.Status.Terminal():
		w.continued, w.aborted = true, false
		if p := w.s.Poison; p != nil && w.chance("replay", 2) {
			w.start([]state.Signal{state.ReplaySignal(w.s.Version, w.now)})
			return
		}
		w.start([]state.Signal{{ID: "m", Message: &said}})
	case w.chance("abort", 20):
		w.aborted = true
		w.start(nil)
	case w.chance("steer", 8):
		w.start([]state.Signal{{ID: "m", Message: &said}})
	case w.chance("interrupt", 8):
		w.start([]state.Signal{w.interrupt()})
	case w.s.Status == state.Waiting:
		w.wake()
	default:
		w.start(nil)
	}
}

// wake answers some of what a run waits for, or lets time pass.
func (w *walk) wake() {
	names := w.s.Awaits()
	if len(names) == 0 || w.chance("time passes", 6) {
		if due := w.s.Due(); !due.IsZero() && due.After(w.now.Time) {
			w.now = state.At(due)
		}
		w.start(nil)
		return
	}
	if !w.kind() {
		names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(w.rt, "answers")
	}
	var signals []state.Signal
	for i, name := range names {
		signals = append(signals, w.signal(fmt.Sprintf("s%d", i), name))
	}
	w.start(signals)
}

func (w *walk) signal(id, name string) state.Signal {
	sig := state.Signal{ID: id, At: w.now}
	for _, o := range w.s.Open {
		if o.Needs == "" || state.AwaitCall(o.Needs, o.ID) != name {
			continue
		}
		switch o.Needs {
		case state.NeedApproval:
			a := state.Approval{CallID: o.ID, Decision: state.Approve}
			if w.chance("denied", 3) {
				a.Decision = state.Deny
			} else if w.chance("edited", 3) {
				a.Arguments = `{"edited":true}`
			}
			sig.Approvals = []state.Approval{a}
		case state.NeedChild:
			sig.Child = &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: "done", Usage: state.Usage{OutputTokens: 3, ModelCalls: 1}}
		case state.NeedAnswer:
			answer := "yes"
			sig.Answer = &answer
		case state.NeedResult, state.NeedAsync:
			sig.ToolResults = []state.SignalResult{{CallID: o.ID, Content: "result", IsError: w.chance("fails", 4)}}
		}
		return sig
	}
	answer := "go on"
	sig.Answer = &answer
	return sig
}

func (w *walk) answerModel(effect loop.CallModel) {
	switch {
	case w.chance("crash", 15):
		w.die()
	case w.chance("abort", 20):
		w.abortModel(effect, loop.ByUser)
	case w.chance("interrupt", 10):
		w.abortModel(effect, loop.ByMessage)
	case !w.s.Limits.DeadlineAt.IsZero() && w.chance("deadline", 10):
		w.abortModel(effect, loop.ByDeadline)
	case w.chance("over the limit", 12):
		ev := loop.ModelDelayed{At: w.at(), Wait: time.Duration(rapid.IntRange(1, 3).Draw(w.rt, "wait")) * time.Second, Detail: "rate limit", Purpose: effect.Purpose}
		if w.chance("place", 2) {
			ev.Reservation = &state.Reservation{Key: "k", At: 1}
		}
		w.feed(ev)
	case w.chance("model fails", 6):
		class := rapid.SampledFrom([]model.Class{
			model.PromptTooLong, model.RateLimited, model.Overloaded, model.Quota, model.InvalidRequest, model.Auth, model.ContentFilter, model.Transport, model.Timeout,
		}).Draw(w.rt, "class")
		e := &model.Error{Class: class, Message: string(class), RetryAfter: time.Duration(rapid.IntRange(0, 3).Draw(w.rt, "retry after")) * time.Second}
		if w.chance("partial", 3) {
			e.Partial = "half a"
		}
		w.feed(loop.ModelFailed{At: w.at(), Err: e, Failed: 1, Purpose: effect.Purpose})
	default:
		w.feed(loop.ModelResponded{At: w.at(), Attempt: w.attempt, Response: w.response(effect), Purpose: effect.Purpose})
	}
}

func (w *walk) abortModel(effect loop.CallModel, cause loop.AbortCause) {
	ev := loop.Aborted{At: w.at(), Cause: cause, Reason: "enough", Failed: 1}
	if len(effect.Tools) > 0 && w.chance("calls had arrived", 2) {
		resp := model.Response{Parts: w.calls(2)}
		ev.Response = &resp
	}
	w.cut(ev)
}

// cut feeds an abort, with the message if that is its cause.
func (w *walk) cut(ev loop.Aborted) {
	if ev.Cause == loop.ByMessage {
		ev.Reason, ev.Signals = "", []state.Signal{w.interrupt()}
	}
	w.feed(ev)
}

func (w *walk) interrupt() state.Signal {
	said, mode := state.UserText("stop that"), state.Interrupt
	if w.chance("rollback", 2) {
		mode = state.Rollback
	}
	return state.Signal{ID: "i", Message: &said, Mode: mode, At: w.now}
}

func (w *walk) response(effect loop.CallModel) model.Response {
	cost := state.MicroUSD(1000)
	resp := model.Response{Stop: model.StopEnd, Usage: state.Usage{InputTokens: int64(50 * len(effect.Messages)), OutputTokens: 20, CostUSD: &cost}}
	text := "the answer"
	if !w.kind() {
		text = rapid.SampledFrom([]string{"the answer", "", `{"tool":"t"}`, `{"agent":"helper","task":"x"}`, `{"agent":"nobody","task":"x"}`, "{}"}).Draw(w.rt, "text")
	}
	resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: text})
	if n := 4; !w.kind() && len(effect.Tools) > 0 && w.chance("calls", 1) {
		resp.Parts = append(resp.Parts, w.calls(rapid.IntRange(0, n).Draw(w.rt, "how many"))...)
	}
	if !w.kind() {
		resp.Stop = rapid.SampledFrom([]model.Stop{
			model.StopEnd, model.StopEnd, model.StopEnd, model.StopToolCalls, model.StopMaxOutputTokens, model.StopRefusal, model.StopContentFilter, model.StopPause,
		}).Draw(w.rt, "stop")
	}
	return resp
}

// calls returns calls of tools of the agent and of unknown tools, with valid and invalid arguments.
func (w *walk) calls(n int) []state.Part {
	names := append(w.agent.ToolNames(), "hammer", agent.AskUser)
	if w.last != nil && w.chance("again", 8) {
		return slices.Clone(w.last)
	}
	var parts []state.Part
	for i := range n {
		p := state.Part{
			Type: state.PartToolCall, ID: rapid.SampledFrom([]string{"", "same", fmt.Sprintf("c%d", i)}).Draw(w.rt, "id"),
			Name:      rapid.SampledFrom(names).Draw(w.rt, "tool"),
			Arguments: rapid.SampledFrom([]string{"{}", `{"task":"x"}`, `{"amount":500}`, `{"question":"what?"}`, `{"broken`, "", "[1]"}).Draw(w.rt, "arguments"),
		}
		if w.readsHistory(p.Name) && !w.kind() {
			p.Arguments = fmt.Sprintf(`{"result":%q}`, rapid.SampledFrom(state.FullView(w.s.Log)).Draw(w.rt, "read").ID)
		}
		parts = append(parts, p)
	}
	w.last = slices.Clone(parts)
	return parts
}

func (w *walk) readsHistory(name string) bool {
	spec := w.agent.Tool(name)
	return spec != nil && spec.By == tool.ByHistory
}

func (w *walk) answerTools(effect loop.RunTools) {
	var done []loop.ToolResult
	for _, c := range effect.Calls {
		r := loop.ToolResult{CallID: c.ID, Name: c.Name, Content: "result of " + c.ID, IsError: w.chance("tool fails", 5), At: w.at()}
		if slices.ContainsFunc(w.agent.ToolNames(), w.readsHistory) && w.chance("long", 6) {
			r.Content = strings.Repeat("long ", 9000)
		}
		if spec := w.agent.Tool(c.Name); spec != nil && spec.Async && w.chance("pending", 2) {
			r = loop.ToolResult{CallID: c.ID, Name: c.Name, Pending: true, At: w.now}
		}
		if w.chance("asks", 8) {
			r = loop.ToolResult{CallID: c.ID, Name: c.Name, Ask: &tool.Ask{Question: "sure?", State: json.RawMessage("1")}, At: w.now}
		}
		done = append(done, r)
	}
	cut := len(done)
	crash, abort, interrupt := w.chance("crash", 10), w.chance("abort", 15), w.chance("interrupt", 10)
	if crash || abort || interrupt {
		cut = rapid.IntRange(0, len(done)-1).Draw(w.rt, "finished")
	}
	finished := slices.DeleteFunc(slices.Clone(done[:cut]), func(r loop.ToolResult) bool { return r.Pending || r.Ask != nil })
	switch {
	case crash:
		w.results = append(w.results, finished...)
		for _, c := range effect.Calls {
			if spec := w.agent.Tool(c.Name); spec != nil && !spec.Idempotent && !slices.ContainsFunc(finished, func(r loop.ToolResult) bool { return r.CallID == c.ID }) {
				w.started = append(w.started, c.ID)
			}
		}
		w.die()
	case abort:
		w.feed(loop.Aborted{At: w.at(), Cause: loop.ByUser, Reason: "enough", Started: true, Results: finished})
	case interrupt:
		w.cut(loop.Aborted{At: w.at(), Cause: loop.ByMessage, Started: true, Results: finished})
	default:
		w.feed(loop.ToolsFinished{At: w.at(), Results: done})
	}
}

// find answers a handoff. The walk continues with the definition that it has.
func (w *walk) find(effect loop.SwitchAgent) {
	switch {
	case w.chance("abort", 15):
		w.feed(loop.Aborted{At: w.at(), Cause: loop.ByUser, Reason: "enough"})
	case w.chance("interrupt", 10):
		w.cut(loop.Aborted{At: w.at(), Cause: loop.ByMessage})
	case w.chance("missing", 20):
		w.feed(loop.AgentFound{At: w.at(), Asked: effect, Problem: "there is no such agent"})
	default:
		w.feed(loop.AgentFound{At: w.at(), Asked: effect, Agent: state.AgentRef{Name: effect.Agent, Version: 2}, Instructions: w.agent.Instructions})
	}
}

func (w *walk) answerHooks(effect loop.RunHooks) {
	if w.chance("crash", 10) {
		w.die()
		return
	}
	if w.chance("abort", 15) {
		w.feed(loop.Aborted{At: w.at(), Cause: loop.ByUser, Reason: "enough"})
		return
	}
	if w.chance("interrupt", 10) {
		w.cut(loop.Aborted{At: w.at(), Cause: loop.ByMessage})
		return
	}
	no := "no"
	options := map[hook.Point][]hook.Answer{
		hook.Input:   {{}, {}, {}, {Replace: &no}, {Refuse: &no}, {Failed: &no}},
		hook.PreTool: {{}, {}, {Deny: &no}, {Approval: true}, {Arguments: json.RawMessage(`{"edited": 1}`)}},
		hook.Stop:    {{}, {Block: &no}, {Prevent: &no}, {Failed: &no}},
	}
	answers := make([]hook.Answer, max(1, len(effect.Calls), len(effect.Messages)))
	for i := range answers {
		if !w.kind() {
			answers[i] = rapid.SampledFrom(options[effect.Point]).Draw(w.rt, "hook")
		}
	}
	w.feed(loop.HooksAnswered{At: w.at(), Asked: effect, Answers: answers})
}
