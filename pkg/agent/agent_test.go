package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const scripted = "name: a\nmodel: {provider: scripted}\n"

func parse(t *testing.T, text string) (*agent.Agent, error) {
	t.Helper()
	def, err := agent.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return agent.Compile(def, 1, nil)
}

func TestCompileAccepts(t *testing.T) {
	t.Parallel()
	a, err := parse(t, `
name: support
instructions: You are a support agent.
model: {provider: anthropic, name: claude-haiku-4-5, max_output_tokens: 4096, api_key: "secret://KEY"}
loop: {type: react, max_turns: 20}
tools:
  - {name: refund, kind: nats, approval: "args.amount > 100", idempotent: false, timeout: 30s, concurrency: serial}
  - {name: pick_file, kind: client, schema: {type: object, required: [path], properties: {path: {type: string}}}}
  - {name: ask_user, kind: human}
limits: {output_tokens: 50000, cost_usd: 0.50, deadline: 10m, warn_at: 0.8}
`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range a.ToolSpecs() {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"refund", "pick_file", "ask_user"}, names); diff != "" {
		t.Errorf("ToolSpecs:\n%s", diff)
	}
	created := state.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	got := a.Tighten(state.Limits{MaxTurns: 5, OutputTokens: 90000}, created)
	want := state.Limits{MaxTurns: 5, OutputTokens: 50000, CostUSD: 500000, DeadlineAt: state.At(created.Add(10 * time.Minute)), WarnAt: 0.8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Tighten:\n%s", diff)
	}
	refund := a.Tool("refund")
	for args, want := range map[string]bool{`{"amount":101}`: true, `{"amount":99.5}`: false, `{}`: true, `{"amount":"x"}`: true} {
		if got := refund.NeedsApproval(args); got != want {
			t.Errorf("NeedsApproval(%s) = %v, want %v", args, got, want)
		}
	}
	pick := a.Tool("pick_file")
	if err := pick.Validate(`{"path":"x"}`); err != nil {
		t.Errorf("Validate: %v", err)
	}
	for _, bad := range []string{``, `[]`, `null`, `{"path":1}`, `{`} {
		if pick.Validate(bad) == nil {
			t.Errorf("Validate(%s) accepts it", bad)
		}
	}
}

// D3, D7, D8: what makes no sense is refused with the reason.
func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"name: Bad Name\nmodel: {provider: scripted}", "name:"},
		{"name: a\nmodel: {provider: nobody, name: x}", "model.provider"},
		{"name: a\nmodel: {provider: openai}", "model.name"},
		{"name: a\nmodel: {provider: openai, name: x, api_key: sk-123}", "secret://"},
		{"name: a\nmodel: {provider: openai, name: x, responses: [{text: hi}]}", "responses"},
		{scripted + "surprise: 1", "surprise"},
		{scripted + "loop: {type: react, max_turns: 201}", "201 is above the ceiling of 200"},
		{scripted + "loop: {type: spiral}", "spiral"},
		{scripted + "loop: {type: single_call}\ntools: [{name: t}]", "uses the loop single_call but has 1 tool"},
		{scripted + "loop: {type: single_call, converse: true}", "converse"},
		{scripted + "output_schema: {type: object}", "single_call"},
		{scripted + "tools: [{name: t}, {name: t}]", "used twice"},
		{scripted + "tools: [{name: t, kind: client}]", "needs a JSON Schema"},
		{scripted + "tools: [{name: t, kind: magic}]", "magic"},
		{scripted + "tools: [{name: t, schema: {type: 7}}]", "schema"},
		{scripted + "tools: [{name: t, approval: \"args.amount >\"}]", "approval"},
		{scripted + "tools: [{name: t, approval: \"1 + 1\"}]", "boolean"},
		{scripted + "tools: [{name: t, timeout: soon}]", "30s"},
		{scripted + "limits: {warn_at: 2}", "warn_at"},
		{scripted + "limits: {output_tokens: -1}", "negative"},
		{"name: a\nmodel: {provider: scripted, responses: [{error: gremlins}]}", "gremlins"},
		{"name: a\nname: b\nmodel: {provider: scripted}", "name"},
	}
	for _, tt := range tests {
		_, err := parse(t, tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n  error = %v, want one with %q", tt.text, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(scripted))
	f.Add([]byte(`{"name":"a","model":{"provider":"scripted","responses":[{"delay":"1s"}]},"tools":[{"name":"t","approval":"args.x > 1"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := agent.Parse(data)
		if err != nil {
			return
		}
		a, err := agent.Compile(def, 1, nil)
		if err != nil {
			return
		}
		for _, s := range a.ToolSpecs() {
			a.Tool(s.Name).NeedsApproval(`{"x":1}`)
			_ = a.Tool(s.Name).Validate(`{"x":1}`)
		}
	})
}
