package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func compile(t *testing.T, definition string) *agent.Agent {
	t.Helper()
	known := agent.Builtin()
	def, err := known.Parse([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	a, err := known.Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// none is a tenant without agents.
type none struct{ asked []string }

func (n *none) Agent(_ context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	n.asked = append(n.asked, fmt.Sprintf("%s/%s@%d", tenant, name, version))
	return state.AgentVersion{}, state.ErrNotFound
}

const everything = `{
	"name": "a", "instructions": "Say {{word}} to {{who}}.",
	"variables": {"properties": {"word": {"type": "string"}}},
	"model": {"provider": "openai", "name": "gpt-5", "fallback": [
		{"provider": "openai", "name": "gpt-5-mini", "base_url": "https://models.example/v1", "api_key": "secret://MINE"},
		{"provider": "anthropic", "name": "claude-haiku-4-5", "api_key": "secret://CLAUDE"}]},
	"webhook": {"url": "https://hooks.example/in", "secret": ["secret://OLD", "secret://NEW"]},
	"tools": [
		{"name": "pay", "kind": "nats", "probe": {"name": "paid", "kind": "nats"}},
		{"name": "ask_b", "kind": "agent", "agent": "b"},
		{"name": "ask_a", "kind": "agent", "agent": "a"},
		{"name": "fetch", "kind": "http", "url": "https://api.example/{id}?q={query}", "headers": {"X-Key": "secret://FETCH"},
			"schema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
			"probe": {"kind": "http", "url": "https://other.example/find", "headers": {"X-Key": "secret://FIND"}}}],
	"hooks": {
		"input": [{"kind": "nats", "subject": "SUBJECT.one"}],
		"pre_tool": [{"kind": "cel", "when": "true", "then": "deny"}, {"kind": "nats", "subject": "SUBJECT.two"}],
		"stop": [{"kind": "nats", "subject": "SUBJECT.three"}],
		"stop_failure": [{"kind": "nats", "subject": "SUBJECT.four"}],
		"post_sampling": [{"kind": "nats", "subject": "SUBJECT.five"}]}
}`

// Each thing that an agent lacks is reported with its kind, its name and its place in the definition. A tenant's
// services, agents and secrets are looked up as that tenant's.
func TestMissing(t *testing.T) {
	t.Parallel()
	for tenant, root := range map[string]string{state.DefaultTenant: "tp", "acme": "tp.t.acme"} {
		a := compile(t, strings.ReplaceAll(everything, "SUBJECT", root+".hook"))
		agents := &none{}
		var secrets []string
		absent := func(what string) func(context.Context, string, string, string) error {
			return func(_ context.Context, of, name, host string) error {
				secrets = append(secrets, fmt.Sprintf("%s %s/%s for %s", what, of, name, host))
				return errors.New("absent")
			}
		}
		f := &lookup.Finder{
			Prefix: "tp", Providers: model.BuiltinSpecs(), Agents: agents, Key: absent("key"), Secret: absent("secret"),
			Services: func(_ context.Context, of string) (map[string]bool, error) {
				return map[string]bool{root + ".hook.three": of == tenant}, nil
			},
		}
		var got []string
		for _, m := range f.Missing(t.Context(), tenant, a) {
			got = append(got, fmt.Sprintf("%s %s at %s", m.Kind, m.Name, m.At))
			if m.Why == "" || m.Fault().At != m.At || m.Fault().Text != m.Why {
				t.Errorf("%+v has the fault %+v", m, m.Fault())
			}
			if m.Kind == lookup.Tool && !strings.Contains(m.Why, "on the subject "+root+".tool."+m.Name+": ") {
				t.Errorf("the tool is missing because %s", m.Why)
			}
		}
		want := []string{
			"variable who at instructions", "argument query at tools[3].url",
			"secret OPENAI_API_KEY at model.provider", "secret OLD at webhook.secret", "secret NEW at webhook.secret",
			"secret MINE at model.fallback[0].api_key", "secret CLAUDE at model.fallback[1].api_key",
			"tool pay at tools[0].name", "tool paid at tools[0].probe.name", "agent b at tools[1].agent", "secret FETCH at tools[3].headers",
			"secret FIND at tools[3].probe.headers",
			"hook " + root + ".hook.one at hooks.input[0].subject", "hook " + root + ".hook.two at hooks.pre_tool[1].subject",
			"hook " + root + ".hook.four at hooks.stop_failure[0].subject", "hook " + root + ".hook.five at hooks.post_sampling[0].subject",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tenant %s: %s", tenant, diff)
		}
		wantSecrets := []string{
			"key " + tenant + "/OPENAI_API_KEY for api.openai.com:443",
			"secret " + tenant + "/OLD for hooks.example:443", "secret " + tenant + "/NEW for hooks.example:443",
			"secret " + tenant + "/MINE for models.example:443", "secret " + tenant + "/CLAUDE for api.anthropic.com:443",
			"secret " + tenant + "/FETCH for api.example:443", "secret " + tenant + "/FIND for other.example:443",
		}
		if diff := cmp.Diff(wantSecrets, secrets); diff != "" {
			t.Errorf("tenant %s: %s", tenant, diff)
		}
		if want := []string{tenant + "/b@0"}; !slices.Equal(agents.asked, want) {
			t.Errorf("looked for the agents %q, want %q", agents.asked, want)
		}
	}
}

// What cannot be looked up is not reported as missing, and no more is reported than MaxWarnings.
func TestMissingIsUnknown(t *testing.T) {
	t.Parallel()
	a := compile(t, strings.ReplaceAll(everything, "SUBJECT", "tp.hook"))
	for name, f := range map[string]*lookup.Finder{
		"nothing to ask": {Agents: &none{}},
		"services fail": {Agents: &none{}, Services: func(context.Context, string) (map[string]bool, error) {
			return nil, errors.New("no NATS")
		}},
	} {
		f.Prefix, f.Providers = "tp", model.BuiltinSpecs()
		for _, m := range f.Missing(t.Context(), state.DefaultTenant, a) {
			if m.Kind == lookup.Tool || m.Kind == lookup.Hook || m.Kind == lookup.Secret {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
	var tools, variables []string
	for i := range lookup.MaxWarnings + 1 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d","kind":"nats"}`, i))
		variables = append(variables, fmt.Sprintf("{{v%d}}", i))
	}
	const head = `{"name":"a","model":{"provider":"scripted","responses":[{"text":"x"}]},`
	f := &lookup.Finder{Prefix: "tp", Agents: &none{}, Services: func(context.Context, string) (map[string]bool, error) { return map[string]bool{}, nil }}
	for _, many := range []string{head + `"tools":[` + strings.Join(tools, ",") + "]}", head + `"variables":{"properties":{"v":{"type":"string"}}},"instructions":"` + strings.Join(variables, "") + `"}`} {
		if got := len(f.Missing(t.Context(), state.DefaultTenant, compile(t, many))); got != lookup.MaxWarnings {
			t.Errorf("%d things are missing, want %d at most: %s", got, lookup.MaxWarnings, many)
		}
	}
}
