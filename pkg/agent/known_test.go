package agent_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

type tableSettings struct {
	Table string            `json:"table"`
	Rows  int               `json:"rows,omitempty"`
	Names map[string]string `json:"names,omitempty"`
	Any   any               `json:"any,omitempty"`
	Share float32           `json:"share,omitempty"`
}

type urnSettings struct {
	URN string `json:"urn"`
}

// third returns what is known to a process with a third-party kind of tool and hook, provider and loop.
func third() agent.Known {
	k := agent.Builtin("spiral")
	k.Tools["table"] = tool.SpecOf(func(d tool.Definition, s *tableSettings) (tool.Needs, error) {
		var errs []error
		if s.Table == "" {
			errs = append(errs, tool.Invalid("table", "it is missing"))
		}
		if d.Timeout != 0 {
			errs = append(errs, errors.New("tables are read at once"))
		}
		return tool.Needs{By: tool.ByClient, Arguments: json.RawMessage(`{"type":"object","title":"rows"}`)}, errors.Join(errs...)
	})
	k.Hooks["urn"] = hook.SpecOf(func(p hook.Point, s *urnSettings) (string, error) {
		if !strings.HasPrefix(s.URN, "urn:") {
			return "", &hook.Mistake{Key: "urn", Text: "it is no URN"}
		}
		return s.URN, nil
	})
	k.Providers["bedrock"] = model.Spec{APIs: []model.API{"converse"}}
	return k
}

// Third-party additions are read and validated like built-in ones.
func TestThirdParties(t *testing.T) {
	t.Parallel()
	const text = `
name: a
model: {provider: bedrock, name: x, api: converse}
loop: {type: spiral}
tools: [{name: t, kind: table, table: users, rows: 3, names: {a: b}, any: [1, {b: 2}], share: 0.5, max_calls: 2}]
hooks: {stop: [{kind: urn, urn: "urn:x", on_error: deny}]}
`
	def, err := third().Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := third().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := a.Tool("t")
	want := &tableSettings{Table: "users", Rows: 3, Names: map[string]string{"a": "b"}, Any: []any{1.0, map[string]any{"b": 2.0}}, Share: 0.5}
	if diff := cmp.Diff(want, got.Settings); diff != "" {
		t.Errorf("settings:\n%s", diff)
	}
	if got.By != tool.ByClient || string(got.Schema) != `{"type":"object","title":"rows"}` || got.MaxCalls != 2 {
		t.Errorf("got %+v", got)
	}
	h := a.Hooks(hook.Stop)[0]
	if h.Title() != "urn:x" || !h.Objects() {
		t.Errorf("hook %q", h.Title())
	}
	if diff := cmp.Diff(&urnSettings{"urn:x"}, h.Settings); diff != "" {
		t.Errorf("settings of the hook:\n%s", diff)
	}
	_, err = third().Parse([]byte("name: a\nnam: b\nmodel: {provider: scripted}\ntools: [{name: t, kind: table, table: 7, rows: x}]\nhooks: {stop: [{kind: urn, uri: x}]}"))
	for _, want := range []string{"nam: unknown key", "tools[0].table: 7 is not valid here: write a string", "tools[0].rows: a string is not valid here: write a whole number", "hooks.stop[0].uri: unknown key: remove it, or use one of kind, tools, timeout, on_error, urn"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse: error = %v, want one with %q", err, want)
		}
	}
	def, err = agent.Parse([]byte("name: a\nmodel: {provider: bedrock, name: x, api: chat}\ntools: [{name: t, kind: table, timeout: 1s}]\nhooks: {stop: [{kind: urn, urn: x}]}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = third().Compile(def, 1)
	for _, want := range []string{
		`model.api: it is "chat": write one of converse`, "tools[0].table: it is missing", "tools[0]: tables are read at once", "hooks.stop[0].urn: it is no URN",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile: error = %v, want one with %q", err, want)
		}
	}
}

// A process without a kind names that kind, and those it has.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	def, err := agent.Builtin().Parse([]byte("name: a\nmodel: {provider: bedrock, name: x}\ntools: [{name: t, kind: table, table: users}]\nhooks: {stop: [{kind: urn, urn: \"urn:x\"}]}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Builtin().Compile(def, 1)
	for _, want := range []string{
		`tools[0].kind: this process does not know tools of kind "table": use one of a2a, agent`, `hooks.stop[0].kind: it is "urn": write one of cel, go, nats`,
		`model.provider: "bedrock" is not a provider of this build: write one of anthropic, gemini, openai, scripted`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one with %q", err, want)
		}
	}
}

// stored is a definition as stored before kinds had their own settings.
const stored = `{"name":"a","model":{"provider":"scripted"},"tools":[
{"name":"f","idempotent":true,"reuse":false,"max_calls":3,"max_result":10,"timeout":"30s","concurrency":"serial","approval":"args.n \u003e 100"},
{"name":"n","kind":"nats","description":"d","schema":{"type":"object"},"async":true},
{"name":"c","kind":"client","schema":{"type":"object"}},
{"name":"ask_user","kind":"human"},
{"name":"g","kind":"agent","agent":"b","max_depth":3},
{"name":"r","kind":"a2a","url":"https://x/?a=b\u0026c=d","token":"secret://T"},
{"name":"h","kind":"http","url":"https://x/{p}","method":"POST","query":{"q":"{p}"},"headers":{"X-Key":"secret://K"}},
{"name":"m","kind":"mcp","command":["npx","s"],"env":{"K":"secret://K"},"allow":["a","b"]}
],"hooks":{
"stop":[{"kind":"go","name":"review","timeout":"1s","on_error":"deny"}],
"pre_tool":[{"kind":"nats","subject":"policy.x","tools":["f"]},{"kind":"cel","when":"args.n \u003e 1","then":"deny","message":"no"}]}}`

// Definitions keep their form: a stored one reads, and is written unchanged.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	def, err := agent.Builtin().Parse([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Tool("g"); got.Agent != "b" || got.DepthLimit() != 3 {
		t.Errorf("got %+v", got.Needs)
	}
	if len(a.Sources()) != 1 || a.Sources()[0].Index != 7 || a.Tool("m") != nil {
		t.Errorf("sources %+v", a.Sources())
	}
	saved, err := json.Marshal(def)
	if err != nil {
		t.Fatal(err)
	}
	var was, is any
	if err := errors.Join(json.Unmarshal([]byte(stored), &was), json.Unmarshal(saved, &is)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("after Parse and Marshal:\n%s", diff)
	}
	again, err := agent.Parse(saved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(def, again); diff != "" {
		t.Errorf("after another Parse:\n%s", diff)
	}
}
