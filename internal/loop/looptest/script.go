package looptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Play runs the scenarios that match pattern and compares the loops' decisions with those in
// the files; with update it rewrites the files.
//
// A scenario has a head in YAML (what: which behaviours it shows; agent: a
// definition; limits), an empty line, and the events, one a line:
//
//	> begin                         > wait 30s
//	> model "text" calls t {"a":1}; u {}  stop max_output_tokens  out 600
//	> fail overloaded after 2s      > fail auth partial "half a"
//	> tools c1 "42"; c2 error "no"; c3 pending; c4 asks "sure?"
//	> hooks {}; {"deny":"no"}
//	> found 3 "Be brief."         > found error "there is no agent"
//	> approve c1 {"a":2}; deny c2   > answer "yes"; message "hurry"; result c1 "x"; child c2 "y"
//	> replay
//	> abort   > abort after c1 "42" > deadline   > crash after c1 "42"
//	> abort with t {"a":1}          > abort partial "half a"
//	> interrupt "stop"   > interrupt "stop" partial "half a"   > interrupt "stop" after c1 "42"   > rollback "stop"
//
// Calls of a response have the ids c1, c2, … . After each event follow the loop's decisions:
// the entries appended to the log (+) and the next effect (<). Play also makes the checks that
// Exercise makes after every step.
func Play(t *testing.T, registry loop.Registry, pattern string, update bool) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, registry, string(want))
			if update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// head is the head of a scenario.
type head struct {
	What   string           `json:"what"`
	Agent  agent.Definition `json:"agent"`
	Limits limits           `json:"limits"`
}

type limits struct {
	MaxTurns     int            `json:"max_turns"`
	OutputTokens int64          `json:"output_tokens"`
	CostUSD      state.MicroUSD `json:"cost_usd"`
	Deadline     model.Duration `json:"deadline"`
	Wait         model.Duration `json:"wait"`
}

func (l limits) of() state.Limits {
	out := state.Limits{MaxTurns: l.MaxTurns, OutputTokens: l.OutputTokens, CostUSD: l.CostUSD, WaitMS: time.Duration(l.Wait).Milliseconds()}
	if l.Deadline > 0 {
		out.DeadlineAt = state.At(epoch.Add(time.Duration(l.Deadline)))
	}
	return out
}

func play(t *testing.T, registry loop.Registry, text string) string {
	t.Helper()
	top, body, ok := strings.Cut(text, "\n\n")
	if !ok {
		t.Fatal("a scenario is a head, an empty line, and events")
	}
	var h head
	if err := yaml.UnmarshalStrict([]byte(top), &h); err != nil {
		t.Fatalf("head: %v", err)
	}
	a, bind := compile(t, registry, h.Agent)
	s := &script{run: begin(t, a, bind, h.Limits.of(), "hello"), t: t}
	s.out.WriteString(top + "\n\n")
	for line := range strings.Lines(body) {
		if event, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			s.event(event)
		} else if strings.HasPrefix(line, "#") {
			s.out.WriteString(line)
		}
	}
	return s.out.String()
}

type script struct {
	*run

	t       *testing.T
	out     bytes.Buffer
	attempt int
	written int // log entries that were written to the file

	started []string // of the turn in flight, as journaled
	results []loop.ToolResult
}

// event feeds one line to the loop.
func (s *script) event(line string) {
	s.t.Helper()
	fmt.Fprintf(&s.out, "> %s\n", line)
	s.written = len(s.s.Log)
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "begin":
		s.start(loop.TurnBegan{})
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.now = state.At(s.now.Add(d))
		s.start(loop.TurnBegan{})
	case "model":
		s.step(loop.ModelResponded{At: s.at(), Attempt: s.attempt, Response: s.response(rest), Purpose: s.purpose()})
	case "fail":
		s.step(loop.ModelFailed{At: s.at(), Err: s.failure(rest), Failed: 1, Purpose: s.purpose()})
	case "tools":
		if _, ok := s.effect.(loop.RunTools); !ok {
			s.t.Fatalf("the loop called for %T, want tools", s.effect)
		}
		s.step(loop.ToolsFinished{At: s.at(), Results: s.outcomes(rest)})
	case "hooks":
		s.hooks(rest)
	case "found":
		s.found(rest)
	case "approve", "deny", "answer", "message", "result", "child", "replay":
		s.start(loop.TurnBegan{Signals: s.signals(line)})
	case "abort", "deadline":
		s.cut(verb, rest)
	case "interrupt", "rollback":
		s.interrupt(state.Mode(verb), rest)
	case "crash":
		s.lose(rest)
	default:
		s.t.Fatalf("%q is no event", line)
	}
	s.write()
}

func (s *script) start(ev loop.TurnBegan) {
	s.attempt++
	ev.At, ev.Worker, ev.Attempt, ev.Poisoned = s.at(), "w", s.attempt, s.attempt > 5
	s.step(ev)
}

func (s *script) purpose() loop.Purpose {
	if call, ok := s.effect.(loop.CallModel); ok {
		return call.Purpose
	}
	s.t.Fatalf("the loop called for %T, want a model call", s.effect)
	return ""
}

// field cuts `name value` off the end of a line.
func field(line, name string) (rest, value string) {
	i := strings.LastIndex(line, " "+name+" ")
	if i < 0 {
		return line, ""
	}
	return line[:i], strings.TrimSpace(line[i+len(name)+2:])
}

func (s *script) number(text string) int64 {
	var n int64
	if text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			s.t.Fatalf("%q is no number", text)
		}
	}
	return n
}

func (s *script) unquote(text string) string {
	var out string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("%s is not quoted text: %v", text, err)
	}
	return out
}

func (s *script) response(line string) model.Response {
	line = " " + line
	line, out := field(line, "out")
	line, in := field(line, "in")
	line, stop := field(line, "stop")
	text, calls := field(line, "calls")
	r := model.Response{Stop: model.StopEnd, Usage: state.Usage{InputTokens: s.number(in), OutputTokens: s.number(out)}}
	if stop != "" {
		r.Stop = model.Stop(stop)
	}
	if text = strings.TrimSpace(text); text != "" {
		r.Parts = append(r.Parts, state.Part{Type: state.PartText, Text: s.unquote(text)})
	}
	for i, call := range items(calls) {
		name, args, _ := strings.Cut(call, " ")
		r.Parts = append(r.Parts, state.Part{Type: state.PartToolCall, ID: fmt.Sprintf("c%d", i+1), Name: name, Arguments: args})
	}
	return r
}

// items splits at semicolons.
func items(line string) []string {
	var out []string
	for item := range strings.SplitSeq(line, ";") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func (s *script) failure(line string) *model.Error {
	line, partial := field(line, "partial")
	line, after := field(line, "after")
	line = strings.TrimSpace(line)
	e := &model.Error{Class: model.Class(line), Message: line}
	if partial != "" {
		e.Partial = s.unquote(partial)
	}
	if after != "" {
		d, err := time.ParseDuration(after)
		if err != nil {
			s.t.Fatal(err)
		}
		e.RetryAfter = d
	}
	return e
}

func (s *script) outcomes(line string) []loop.ToolResult {
	var out []loop.ToolResult
	for _, item := range items(line) {
		id, content, _ := strings.Cut(item, " ")
		r := loop.ToolResult{CallID: id, At: s.now, Pending: content == "pending"}
		for _, o := range s.s.Open {
			if o.ID == id {
				r.Name = o.Name
			}
		}
		if text, failed := strings.CutPrefix(content, "error "); failed {
			r.IsError, content = true, text
		}
		if text, asks := strings.CutPrefix(content, "asks "); asks {
			content = text
			r.Ask = &tool.Ask{Question: s.unquote(text), State: json.RawMessage(text)}
		}
		if !r.Pending {
			r.Content = s.unquote(content)
		}
		out = append(out, r)
	}
	return out
}

func (s *script) hooks(line string) {
	asked, ok := s.effect.(loop.RunHooks)
	if !ok {
		s.t.Fatalf("the loop called for %T, want hooks", s.effect)
	}
	var answers []hook.Answer
	for _, item := range items(line) {
		a, err := hook.Decode([]byte(item), asked.Point)
		if err != nil {
			s.t.Fatal(err)
		}
		answers = append(answers, a)
	}
	s.step(loop.HooksAnswered{At: s.at(), Asked: asked, Answers: answers})
}

// found answers a handoff: with the agent's version and instructions, or the reason why it cannot continue the
// run.
func (s *script) found(line string) {
	asked, ok := s.effect.(loop.SwitchAgent)
	if !ok {
		s.t.Fatalf("the loop called for %T, want a handoff", s.effect)
	}
	ev := loop.AgentFound{At: s.at(), Asked: asked}
	if problem, failed := strings.CutPrefix(line, "error "); failed {
		ev.Problem = s.unquote(problem)
	} else {
		version, text, _ := strings.Cut(line, " ")
		ev.Agent = state.AgentRef{Name: asked.Agent, Version: int(s.number(version))}
		if text != "" {
			ev.Instructions = s.unquote(text)
		}
	}
	s.step(ev)
}

func (s *script) signals(line string) []state.Signal {
	var out []state.Signal
	for _, item := range items(line) {
		kind, rest, _ := strings.Cut(item, " ")
		id, value, _ := strings.Cut(rest, " ")
		sig := state.Signal{ID: item, At: s.now}
		switch kind {
		case "approve":
			sig.Approvals = []state.Approval{{CallID: id, Decision: state.Approve, Arguments: value}}
		case "deny":
			sig.Approvals = []state.Approval{{CallID: id, Decision: state.Deny, Reason: value}}
		case "answer":
			text := s.unquote(rest)
			sig.Answer = &text
		case "message":
			m := state.UserText(s.unquote(rest))
			sig.Message = &m
		case "interrupt", "rollback":
			m := state.UserText(s.unquote(rest))
			sig.Message, sig.Mode = &m, state.Mode(kind)
		case "result":
			sig.ToolResults = []state.SignalResult{{CallID: id, Content: s.unquote(value)}}
		case "child":
			sig.Child = &state.ChildResult{CallID: id, Content: s.unquote(value)}
		case "replay":
			sig = state.ReplaySignal(s.s.Version, s.now)
		default:
			s.t.Fatalf("%q is no signal", item)
		}
		out = append(out, sig)
	}
	return out
}

// cut aborts the effect in flight, or the run if there is none.
func (s *script) cut(verb, rest string) {
	ev := loop.Aborted{Cause: loop.ByUser, Reason: verb}
	if verb == "deadline" {
		ev.Cause = loop.ByDeadline
	}
	if s.effect == nil {
		s.start(loop.TurnBegan{Abort: &state.Abort{Reason: "enough"}})
		return
	}
	s.abort(ev, rest)
}

// interrupt interrupts the effect in flight with a message. If there is none, the next turn begins with it.
func (s *script) interrupt(mode state.Mode, line string) {
	text, rest := line, ""
	if i := strings.Index(line, `" `); i > 0 {
		text, rest = line[:i+1], line[i+2:]
	}
	signals := s.signals(string(mode) + " " + text)
	if s.effect == nil {
		s.start(loop.TurnBegan{Signals: signals})
		return
	}
	s.abort(loop.Aborted{Cause: loop.ByMessage, Signals: signals}, rest)
}

// abort feeds ev with the outcome of the effect in flight.
func (s *script) abort(ev loop.Aborted, rest string) {
	finished, started := strings.CutPrefix(rest, "after ")
	switch s.effect.(type) {
	case loop.CallModel:
		ev.Failed = 1
		if calls, ok := strings.CutPrefix(rest, "with "); ok {
			r := s.response("calls " + calls)
			ev.Response = &r
		}
		if partial, ok := strings.CutPrefix(rest, "partial "); ok {
			ev.Partial = s.unquote(partial)
		}
	case loop.RunTools:
		ev.Started = true
		if started {
			ev.Results = s.outcomes(finished)
		}
	default:
	}
	ev.At = s.at()
	s.step(ev)
}

// lose simulates a worker that dies, and another that continues the turn.
func (s *script) lose(rest string) {
	if tools, ok := s.effect.(loop.RunTools); ok {
		if finished, ok := strings.CutPrefix(rest, "after "); ok {
			s.results = append(s.results, s.outcomes(finished)...)
		}
		for _, c := range tools.Calls {
			if spec := s.agent.Tool(c.Name); spec != nil && !spec.Idempotent && !has(s.results, c.ID) {
				s.started = append(s.started, c.ID)
			}
		}
	}
	s.crash()
	s.written = len(s.s.Log)
	s.start(loop.TurnBegan{Results: s.results, Started: s.started})
}

func has(results []loop.ToolResult, id string) bool {
	for _, r := range results {
		if r.CallID == id {
			return true
		}
	}
	return false
}
