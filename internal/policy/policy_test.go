package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const everything = `{"name": "a",
	"model": {"provider": "openai", "name": "gpt-5-mini", "api_key": "secret://OWN", "fallback": [
		{"provider": "openai", "name": "qwen", "base_url": "http://10.0.0.7:8000/v1", "api_key": "secret://LOCAL"}]},
	"tools": [
		{"name": "web", "kind": "http", "url": "https://Web.example.com/{p}", "headers": {"X-Key": "secret://WEB"}},
		{"name": "partner", "kind": "a2a", "url": "https://partner.example", "token": "secret://PARTNER"},
		{"name": "db", "kind": "mcp", "command": ["db-mcp", "-x"], "env": {"DSN": "secret://DSN"}},
		{"name": "far", "kind": "mcp", "url": "https://mcp.example.com:8443/mcp"},
		{"name": "pay", "kind": "nats", "probe": {"kind": "http", "url": "https://probe.example/{id}"}}]}`

func compiled(t *testing.T, definition string) *agent.Agent {
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

// A definition that uses something forbidden for its tenant is refused with each location and field.
func TestCheck(t *testing.T) {
	t.Parallel()
	a := compiled(t, everything)
	for name, test := range map[string]struct {
		settings string
		want     []string // parts of the lines of the error, in order
	}{
		"everything": {`{}`, nil},
		"all listed": {`{"hosts": ["*.example.com", "partner.example", "probe.example", "10.0.0.0/8"], "models": ["gpt-*", "openai/qwen"], "mcp_commands": ["db-mcp"],
			"secrets": [{"name": "OWN", "hosts": ["api.openai.com"]}, {"name": "LOCAL", "hosts": ["10.0.0.7:8000"]}, {"name": "WEB"}, {"name": "PARTNER"}, {"name": "DSN"}]}`, nil},
		"no hosts": {`{"hosts": []}`, []string{
			"model.fallback[0].base_url: host 10.0.0.7:8000", "tools[0].url: host Web.example.com:443", "tools[1].url: host partner.example:443",
			"tools[4].probe.url: host probe.example:443", "tools[3].url: host mcp.example.com:8443",
		}},
		"a host of another port": {`{"hosts": ["*.example.com:443", "partner.example", "10.0.0.7", "probe.example"]}`, []string{"tools[3].url: host mcp.example.com:8443"}},
		"models":                 {`{"models": ["gpt-5"]}`, []string{"model: model openai/gpt-5-mini", "model.fallback[0]: model openai/qwen"}},
		"commands":               {`{"mcp_commands": ["npx"]}`, []string{"tools[2].command: program \"db-mcp\" is not among those that agents of tenant acme may start (npx)"}},
		"secrets": {`{"secrets": [{"name": "OWN"}, {"name": "LOCAL"}, {"name": "WEB", "hosts": ["elsewhere.example"]}, {"name": "DSN", "hosts": ["db.example"]}]}`, []string{
			"tools[0]: secret WEB is for the hosts elsewhere.example only and must not be sent to Web.example.com:443", "tools[1]: secret PARTNER is not among", "tools[2]: secret DSN is for the hosts db.example only and must not be given to a program",
		}},
	} {
		var settings api.TenantSettings
		if err := json.Unmarshal([]byte(test.settings), &settings); err != nil {
			t.Fatal(err)
		}
		if err := policy.CheckSettings("acme", settings); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err := policy.Of("acme", settings).Check(a, model.BuiltinSpecs())
		var lines []string
		if err != nil {
			lines = strings.Split(err.Error(), "\n")
		}
		if len(lines) != len(test.want) {
			t.Errorf("%s: %d errors, want %d:\n%v", name, len(lines), len(test.want), err)
			continue
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, test.want[i]) || !strings.Contains(line, " of tenant acme") {
				t.Errorf("%s: %s; want %s", name, line, test.want[i])
			}
		}
	}
}

// Each place of a definition that can name a host, a program or a secret is checked once, and so is each probe, whatever
// the kinds of the tool and of the probe.
func TestCheckEveryPlace(t *testing.T) {
	t.Parallel()
	a := compiled(t, `{"name": "a",
		"model": {"provider": "openai", "name": "m", "api_key": "secret://S0", "fallback": [{"provider": "openai", "name": "n", "base_url": "https://h1.example", "api_key": "secret://S1"}]},
		"webhook": {"url": "https://h2.example", "secret": ["secret://S2", "secret://S3"]},
		"tools": [
			{"name": "http", "kind": "http", "url": "https://h4.example", "headers": {"A": "Bearer secret://S4"}, "probe": {"kind": "http", "url": "https://h5.example/{id}", "headers": {"A": "secret://S5"}}},
			{"name": "a2a", "kind": "a2a", "url": "https://h6.example", "token": "secret://S6", "probe": {"kind": "mcp", "allow": ["find"], "url": "https://h7.example", "headers": {"A": "secret://S7"}}},
			{"name": "mcp", "kind": "mcp", "url": "https://h8.example", "headers": {"A": "secret://S8"}, "probe": {"kind": "http", "url": "https://h11.example/{id}", "headers": {"A": "secret://S11"}}},
			{"name": "program", "kind": "mcp", "command": ["p9"], "env": {"A": "secret://S9"}},
			{"name": "nats", "kind": "nats", "probe": {"kind": "mcp", "allow": ["find"], "command": ["p10"], "env": {"A": "secret://S10"}}}]}`)
	for settings, places := range map[string]string{
		`{"hosts": []}`:        "host h1, host h2, host h4, host h5, host h6, host h7, host h8, host h11",
		`{"mcp_commands": []}`: `program .p9, program .p10`,
		`{"secrets": []}`:      "secret S0, secret S1, secret S2, secret S3, secret S4, secret S5, secret S6, secret S7, secret S8, secret S9, secret S10, secret S11",
	} {
		var s api.TenantSettings
		if err := json.Unmarshal([]byte(settings), &s); err != nil {
			t.Fatal(err)
		}
		err := policy.Of("acme", s).Check(a, model.BuiltinSpecs())
		if err == nil {
			t.Errorf("with %s nothing is refused", settings)
			continue
		}
		for place := range strings.SplitSeq(places, ", ") {
			if n := len(regexp.MustCompile(place+`\b`).FindAllString(err.Error(), -1)); n != 1 {
				t.Errorf("with %s the error names %s %d times, want once:\n%v", settings, place, n, err)
			}
		}
	}
}

// A pattern matches exactly the hosts that it describes, and none an empty host.
func TestMatchHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, host string
		want          bool
	}{
		{"*", "a.example:443", true},
		{"*", "", false},
		{"*", ":443", false},
		{"a.example", "A.Example.:443", true},
		{"a.example", "a.example", true},
		{"a.example:443", "a.example:8443", false},
		{"a.example:443", "a.example", false},
		{"*.example", "b.a.example:1", true},
		{"*.example", ".example:1", false},
		{"*.example", "example:1", false},
		{"*.example", "anexample:1", false},
		{"*.example:1", "a.example:2", false},
		{"10.1.0.0/16", "10.1.255.255:1", true},
		{"10.1.0.0/16", "[::ffff:10.1.0.1]:1", true},
		{"10.1.0.0/16", "10.2.0.0", false},
		{"10.1.0.0/16", "10.1.0.1.example", false},
		{"[2001:db8::1]", "[2001:DB8::1]:443", true},
	} {
		if got := policy.MatchHost(test.pattern, test.host); got != test.want {
			t.Errorf("%s matches %q: %v, want %v", test.pattern, test.host, got, test.want)
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, provider, name string
		want                    bool
	}{
		{"*", "openai", "x", true},
		{"claude-*", "anthropic", "claude-haiku-4-5", true},
		{"claude-*", "openai", "my-claude-x", false},
		{"*-mini", "openai", "gpt-5-mini", true},
		{"g*5*i", "openai", "gpt-5-mini", true},
		{"g*6*i", "openai", "gpt-5-mini", false},
		{"mini-*-mini", "openai", "mini-mini", false},
		{"openai/*", "openai", "x", true},
		{"openai/*", "anthropic", "openai", false},
		{"scripted", "scripted", "", true},
		{"openai", "openai", "gpt-5", false},
	} {
		err := policy.Of("t", api.TenantSettings{Models: []string{test.pattern}}).Model(test.provider, test.name)
		if (err == nil) != test.want {
			t.Errorf("%s of %s by %s: %v", test.name, test.provider, test.pattern, err)
		}
	}
}

func TestCheckSettings(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		`{"hosts": ["https://a.example"]}`:                            "hosts[0]",
		`{"hosts": ["a.example", "a b"]}`:                             "hosts[1]",
		`{"hosts": ["a.*.example"]}`:                                  "hosts[0]",
		`{"hosts": [""]}`:                                             "hosts[0]",
		`{"models": [""]}`:                                            "models[0]",
		`{"mcp_commands": [""]}`:                                      "mcp_commands[0]",
		`{"secrets": [{"name": "a/b"}]}`:                              "secrets[0]: name",
		`{"secrets": [{"name": "A"}, {"name": "A"}]}`:                 "secrets[1]: name: \"A\" is listed twice",
		`{"secrets": [{"name": "A", "hosts": ["*", "http://"]}]}`:     "secrets[0]: hosts[1]",
		`{"indexed_metadata": ["a", ""]}`:                             "indexed_metadata[1]: the key \"\" has 0 bytes",
		`{"indexed_metadata": ["a", "a"]}`:                            "indexed_metadata[1]: the key \"a\" is listed twice",
		`{"indexed_metadata": ["a", "b", "c", "d", "e"]}`:             "indexed_metadata[4]: there are 5 keys, at most 4",
		`{"indexed_metadata": ["` + strings.Repeat("k", 256) + `"]}`:  "has 256 bytes: use 1 to 255",
		`{"provider_tools": ["search"]}`:                              "provider_tools[0]",
		`{"provider_tools": ["*", "anthropic/search"]}`:               "provider_tools[1]",
		`{"streams": [{}]}`:                                           "streams[0]",
		`{"secrets": [{"name": "` + strings.Repeat("A", 129) + `"}]}`: "secrets[0]: name",
	} {
		var s api.TenantSettings
		if err := json.Unmarshal([]byte(settings), &s); err != nil {
			t.Fatal(err)
		}
		if err := policy.CheckSettings("acme", s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
	longest := api.TenantSettings{
		ProviderTools: []string{"*", "anthropic/*"}, Secrets: []api.TenantSecret{{Name: strings.Repeat("A", 128)}},
		IndexedMetadata: []string{strings.Repeat("k", 255), "b", "c", "d"},
	}
	if err := policy.CheckSettings("acme", longest); err != nil {
		t.Error(err)
	}
}

type others interface{ state.Documents }

// documents are the settings of tenants in a store that counts its reads.
type documents struct {
	others

	settings string
	fails    error
	hold     chan struct{} // a read waits until it is closed
	reads    int
}

func (d *documents) Document(context.Context, state.DocumentKind, string) (json.RawMessage, error) {
	d.reads++
	if d.hold != nil {
		<-d.hold
	}
	if d.fails != nil {
		return nil, d.fails
	}
	if d.settings == "" {
		return nil, state.ErrNotFound
	}
	return json.RawMessage(d.settings), nil
}

// A policy is read once in two seconds, and the cached one is used for up to half a minute while the store is
// unreachable.
func TestReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &documents{}
		r := policy.NewReader(docs)
		check := func(host string, reads int, allowed bool) {
			t.Helper()
			p, err := r.Of(t.Context(), "acme")
			if err != nil || (p.Host(host) == nil) != allowed || docs.reads != reads {
				t.Errorf("%s: %v, %v after %d reads; want allowed %t after %d", host, p.Host(host), err, docs.reads, allowed, reads)
			}
		}
		check("a.example:443", 2, true) // of its settings, and of those before it was deleted
		docs.settings = `{"hosts": ["b.example"]}`
		check("a.example:443", 2, true)
		time.Sleep(2 * time.Second)
		check("a.example:443", 3, false)
		check("b.example:443", 3, true)
		time.Sleep(time.Hour)
		docs.settings = `{"hosts": ["c.example"]}`
		docs.hold = make(chan struct{}) // a slow read
		slow := make(chan error)
		go func() {
			_, err := r.Of(t.Context(), "acme")
			slow <- err
		}()
		synctest.Wait()
		held := docs.hold
		docs.hold = nil
		check("b.example:443", 5, false) // it does not use an hour-old policy in the meantime
		close(held)
		if err := <-slow; err != nil {
			t.Fatal(err)
		}
		docs.fails = errors.New("away")
		time.Sleep(3 * time.Second)
		check("a.example:443", 6, false)
		check("a.example:443", 6, false)
		time.Sleep(30 * time.Second)
		if _, err := r.Of(t.Context(), "acme"); err == nil {
			t.Error("the store is unreachable for too long, without an error")
		}
	})
}
