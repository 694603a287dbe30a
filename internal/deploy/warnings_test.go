package deploy_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

const lonely = `instructions: "{{city}} {{town}} {{town}} {{Not this}}"
variables: {type: object, properties: {city: {type: string}}}
model: {provider: openai, name: m, api_key: "secret://HAVE", base_url: "https://models.example.com"}
tools:
  - {name: convert, kind: nats, schema: {type: object}}
  - {name: research, kind: agent, agent: researcher}
  - name: fetch
    kind: http
    url: https://example.com
    headers: {Authorization: "Bearer secret://LACK"}
  - name: weather
    kind: http
    url: https://example.com/{city}/{day}
    query: {unit: "{unit}"}
    schema: {type: object, properties: {day: {type: string}}}
  - {name: derived, kind: http, url: "https://example.com/{city}"}
  - {name: referring, kind: http, url: "https://example.com/{city}", schema: {type: object, $defs: {a: {properties: {city: {type: string}}}}, allOf: [{$ref: "#/$defs/a"}]}}
hooks:
  pre_tool: [{kind: nats, subject: ROOT.hook.policy}]
`

// Saving a definition returns a warning, with its line, for each reference to something missing in the tenant,
// until it exists, and to something that the definition itself lacks. Objects of another tenant do not count.
func TestWarnings(t *testing.T) {
	t.Parallel()
	d, err := deploy.Open(t.Context(), deploy.Config{NATS: testbed.NATS(t), Prefix: "tp"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	// save uses a new gateway, without caches.
	save := func(tenant, name, definition string) []api.Warning {
		t.Helper()
		g, err := d.NewGateway(gateway.Config{Secret: func(_ context.Context, _, name, host string) error {
			if name == "HAVE" && host == "models.example.com:443" {
				return nil
			}
			return errors.New("secret " + name + " is not declared for " + host)
		}})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(g.Handler())
		defer server.Close()
		a, err := api.New(server.URL, api.WithTenant(tenant)).PutAgent(t.Context(), name, []byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		return a.Warnings
	}
	places := func(warnings []api.Warning) (all []string) {
		for _, w := range warnings {
			if w.Line == 0 || w.Column == 0 || w.Detail == "" {
				t.Errorf("warning without a location or a text: %+v", w)
			}
			all = append(all, w.Kind+" "+w.Name+" "+w.At)
		}
		return all
	}
	serve := func(tenant string) {
		t.Helper()
		root := toolkit.Root("tp", tenant)
		stopTool, err := toolkit.ServeTenant(d.NATS, "tp", tenant, toolkit.Func("convert", "", func(context.Context, toolkit.Call, struct{}) (string, error) { return "", nil }))
		if err != nil {
			t.Fatal(err)
		}
		stopHook, err := natshook.Serve(d.NATS, root+".hook.policy", hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { return hook.Answer{}, nil }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = stopTool(), stopHook() })
		if err := d.NATS.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	definition := func(tenant string) string { return strings.ReplaceAll(lonely, "ROOT", toolkit.Root("tp", tenant)) }
	all := func(tenant string) []string {
		return []string{
			"variable town instructions", "argument city tools[3].url", "argument unit tools[3].query",
			"tool convert tools[0].name", "agent researcher tools[1].agent", "secret LACK tools[2].headers",
			"hook " + toolkit.Root("tp", tenant) + ".hook.policy hooks.pre_tool[0].subject",
		}
	}
	serve("acme")
	save("acme", "researcher", `{model: {provider: scripted, responses: [{text: x}]}}`)
	if diff := cmp.Diff(all("default"), places(save("default", "lonely", definition("default")))); diff != "" {
		t.Errorf("with nothing in the tenant:\n%s", diff)
	}
	if diff := cmp.Diff(append(all("acme")[:3], all("acme")[5]), places(save("acme", "lonely", definition("acme")))); diff != "" {
		t.Errorf("the other tenant:\n%s", diff)
	}
	serve("default")
	save("default", "researcher", `{model: {provider: scripted, responses: [{text: x}]}}`)
	if diff := cmp.Diff(append(all("default")[:3], all("default")[5]), places(save("default", "lonely", definition("default")))); diff != "" {
		t.Errorf("after it exists:\n%s", diff)
	}
}
