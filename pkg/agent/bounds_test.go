package agent_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// compiled compiles a definition in YAML.
func compiled(t *testing.T, known agent.Known, text string) (*agent.Agent, agent.Definition, error) {
	t.Helper()
	def, err := known.Parse([]byte(text))
	if err != nil {
		return nil, def, err
	}
	a, err := known.Compile(def, 1)
	return a, def, err
}

// Bounds and contradictions that show only at the second of two things are refused as those at the first are.
func TestCompileRefusesBeyondTheFirst(t *testing.T) {
	t.Parallel()
	known := agent.Builtin()
	known.MaxResult = 1000
	rules := func(n int, rule string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "- {name: t%d, approval: %q}\n", i, rule)
		}
		return scripted + "tools:\n" + b.String()
	}
	for text, want := range map[string]string{
		scripted + "tools: [{name: t, max_result: 1001}]":              "tools[0].max_result: 1001 bytes exceed the 1000",
		scripted + "retention: {events: 1d}":                           "retention.events: an agent cannot set it",
		scripted + "compaction: {}\ntools: [{name: t, kind: results}]": "tools[0].kind: a tool of kind results",
		rules(501, "args.n > 1"):                                       "more than 500 approval rules and hooks",
		"name: a\nmodel: {provider: openai, name: m, fallback: [{provider: openai, name: o, tool_choice: u}]}\ntools: [{name: t}]": `model.fallback[0].tool_choice: the agent has no tool "u"`,
	} {
		if _, _, err := compiled(t, known, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\n%v\nwant %q", text, err, want)
		}
	}
	for _, text := range []string{
		scripted + "tools: [{name: t, max_result: 1000}]", rules(500, "args.n > 1"),
		"name: a\nmodel: {provider: openai, name: m, fallback: [{provider: openai, name: o, tool_choice: t}]}\ntools: [{name: t}]",
	} {
		if _, _, err := compiled(t, known, text); err != nil {
			t.Errorf("%.200s\n%.300v", text, err)
		}
	}
	def := agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted"}, Limits: agent.Limits{WarnAt: math.NaN()}}
	if _, err := known.Compile(def, 1); err == nil || !strings.Contains(err.Error(), "limits.warn_at") {
		t.Errorf("a share that is not a number: %v", err)
	}
	// A mistake stays short, whatever it quotes.
	long := strings.Repeat("x", 10_000)
	def = agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", BaseURL: long, Reasoning: model.Effort(long)}, Loop: agent.Loop{Type: long}}
	if _, err := known.Compile(def, 1); err == nil || len(err.Error()) > 4000 {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// Compile gives the tools their default names, and does not change what the caller has.
func TestCompileLeavesTheDefinition(t *testing.T) {
	t.Parallel()
	a, def, err := compiled(t, agent.Builtin(), scripted+"tools: [{kind: handoff, agent: b}]")
	if err != nil {
		t.Fatal(err)
	}
	if def.Tools[0].Name != "" || !slices.Equal(a.ToolNames(), []string{"transfer_to_b"}) {
		t.Errorf("the caller's tool has the name %q, the agent's tools are %q", def.Tools[0].Name, a.ToolNames())
	}
}

// A memory is read and written by one call at a time, and no result of it is used again.
func TestMemoryIsSerial(t *testing.T) {
	t.Parallel()
	a, _, err := compiled(t, agent.Builtin(), scripted+"tools: [{name: notes, kind: memory, scope: agent}]")
	if err != nil {
		t.Fatal(err)
	}
	if m := a.Tool("notes"); m.Concurrency != "serial" || !m.Idempotent || m.Reuses() {
		t.Errorf("concurrency %q, idempotent %v, reuses %v", m.Concurrency, m.Idempotent, m.Reuses())
	}
}

// A tool of a remote agent delegates as one of a child run does.
func TestRemoteAgentsAreDelegates(t *testing.T) {
	t.Parallel()
	a, _, err := compiled(t, agent.Builtin(), scripted+"tools: [{name: t}, {name: near, kind: agent, agent: b}, {name: far, kind: a2a, url: \"https://far.example\"}]")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range a.Delegates() {
		names = append(names, d.Name)
	}
	if !slices.Equal(names, []string{"near", "far"}) {
		t.Errorf("delegates: %q", names)
	}
}

// Each required variable must have a value, also if others have one. An explicit null is a value: it is inserted as
// nothing, and not as the default.
func TestVariablesBesideOthers(t *testing.T) {
	t.Parallel()
	a, err := withVariables(t, "{{who}}, {{what}}, {{n}}.", `{"type": "object", "required": ["who", "what"], "properties": {"who": {}, "what": {}, "n": {"default": 7}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]string{
		`{"what": "x"}`: "variables.who: it is missing", `{"who": "x"}`: "variables.what: it is missing",
	} {
		if _, err := a.Instruct(json.RawMessage(values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Instruct(%s) = %v, want %q", values, err, want)
		}
	}
	if got, err := a.Instruct(json.RawMessage(`{"who": "a", "what": "b", "n": null}`)); err != nil || got != "a, b, ." {
		t.Errorf("Instruct with null = %q, %v", got, err)
	}
}

// An agent gets its own variables only, and shares the instructions before the first value unless these are blank.
func TestVariablesOfTheAgent(t *testing.T) {
	t.Parallel()
	const schema = `{"properties": {"who": {}, "what": {}}}`
	a, err := withVariables(t, "Help {{who}}.", schema)
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]string{
		`{"who": "a", "other": 1}`: `{"who":"a"}`, `{"other": 1}`: "", `{}`: "", ``: "", `{"what": 2, "who": null}`: `{"what":2,"who":null}`,
	} {
		if got := a.OwnVariables(json.RawMessage(values)); string(got) != want {
			t.Errorf("OwnVariables(%s) = %s, want %s", values, got, want)
		}
	}
	for instructions, want := range map[string]int{"Help {{who}}.": 5, "{{who}}": -1, " \n\t{{who}}": -1, "Help.": 0} {
		a, err := withVariables(t, instructions, schema)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.SharedInstructions(); got != want {
			t.Errorf("%q shares %d bytes, want %d", instructions, got, want)
		}
	}
}
