package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// What several places of a definition name is looked up once and reported for each of them. A secret for another host,
// the workers' own key of the same name, and a service of the same name as an agent are other things.
func TestNamedTwice(t *testing.T) {
	t.Parallel()
	a := compile(t, `{"name": "a", "model": {"provider": "openai", "name": "m", "fallback": [
		{"provider": "openai", "name": "m", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "n", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "m", "base_url": "https://one.example/v1", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "m", "base_url": "https://two.example/v1", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "m", "base_url": "https://two.example/v2", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "m", "base_url": "https://two.example:8443/v1", "api_key": "secret://OPENAI_API_KEY"},
		{"provider": "openai", "name": "n"}]},
		"tools": [{"name": "one", "kind": "agent", "agent": "other"}, {"name": "two", "kind": "agent", "agent": "other"},
			{"name": "other", "kind": "nats"}, {"name": "more", "kind": "nats"},
			{"name": "get", "kind": "http", "url": "https://two.example/", "headers": {"X": "secret://other"}}]}`)
	var secrets []string
	agents := &none{}
	absent := func(what string, allowed ...string) func(context.Context, string, string, string) error {
		return func(_ context.Context, _, name, host string) error {
			secrets = append(secrets, fmt.Sprintf("%s %s for %s", what, name, host))
			if slices.Contains(allowed, host) {
				return nil
			}
			return errors.New("not for " + host)
		}
	}
	asked := 0
	f := &lookup.Finder{
		Prefix: "tp", Providers: model.BuiltinSpecs(), Agents: agents,
		Key: absent("key"), Secret: absent("secret", "api.openai.com:443", "one.example:443"),
		Services: func(context.Context, string) (map[string]bool, error) {
			asked++
			return map[string]bool{}, nil
		},
	}
	var got []string
	for _, m := range f.Missing(t.Context(), state.DefaultTenant, a) {
		got = append(got, m.At+": "+strings.Join(strings.Fields(m.Why)[:3], " "))
	}
	want := []string{
		"model.provider: not for api.openai.com:443", "model.fallback[3].api_key: not for two.example:443", "model.fallback[4].api_key: not for two.example:443",
		"model.fallback[5].api_key: not for two.example:8443", "model.fallback[6].provider: not for api.openai.com:443",
		"tools[0].agent: there is no", "tools[1].agent: there is no", "tools[2].name: there seems to",
		"tools[3].name: there seems to", "tools[4].headers: not for two.example:443",
	}
	if !slices.Equal(got, want) {
		t.Errorf("missing are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{
		"key OPENAI_API_KEY for api.openai.com:443", "secret OPENAI_API_KEY for api.openai.com:443", "secret OPENAI_API_KEY for one.example:443",
		"secret OPENAI_API_KEY for two.example:443", "secret OPENAI_API_KEY for two.example:8443", "secret other for two.example:443",
	}
	if !slices.Equal(secrets, want) {
		t.Errorf("looked for\n%s\nwant\n%s", strings.Join(secrets, "\n"), strings.Join(want, "\n"))
	}
	if len(agents.asked) != 1 || asked != 1 {
		t.Errorf("looked for the agents %q and %d times for services, want one agent once and services once", agents.asked, asked)
	}
}

// A definition with very many secrets costs a bounded number of lookups. The first ones are made, and a place that
// names one of these again is reported also after the others.
func TestLookupsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 100
	var secrets []string
	for i := range most + 2 {
		secrets = append(secrets, fmt.Sprintf("secret://S%d", i))
	}
	a := compile(t, `{"name":"a","model":{"provider":"scripted","responses":[{"text":"x"}]},"tools":[
		{"name":"get","kind":"http","url":"https://one.example/","headers":{"X":"`+strings.Join(secrets, " ")+` secret://S99"}}]}`)
	asked := 0
	f := &lookup.Finder{Agents: &none{}, Secret: func(_ context.Context, _, name, _ string) error {
		asked++
		if name == "S99" || name == "S100" {
			return errors.New("absent")
		}
		return nil
	}}
	missing := f.Missing(t.Context(), state.DefaultTenant, a)
	if asked != most || len(missing) != 2 || missing[0].Name != "S99" || missing[1].Name != "S99" {
		t.Errorf("%d lookups find %+v missing, want %d lookups and S99 twice", asked, missing, most)
	}
}
