package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A reference in a definition to something missing causes a warning with its line in the file, unless a later
// file of the same command defines it.
func TestPutWarns(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	boss := write("boss.yaml", `# who delegates
name: boss
model: {provider: scripted}
tools:
  - {name: later, kind: agent, agent: helper}
  - name: nobody
    kind: agent
    agent: missing
`)
	helper := write("helper.yaml", "name: helper\nmodel: {provider: scripted}\n")
	var out, errs strings.Builder
	c := agentsPutCmd{File: []string{boss, helper}}
	if err := c.Run(&env{ctx: t.Context(), out: &out, errs: &errs, client: api.New(server.URL)}); err != nil {
		t.Fatal(err)
	}
	if want := boss + `:8:5: warning: tools[1].agent: there is no agent "missing", so calls of this tool fail: save it, or correct the name` + "\n"; errs.String() != want {
		t.Errorf("printed\n%swant\n%s", errs.String(), want)
	}
	if want := "boss version 1\nhelper version 1\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, findings := range map[string][]state.Finding{
		"2 ok":                                 {{Name: "a", OK: true}, {Name: "b", OK: true}},
		"1 ok, 1 warning: b":                   {{Name: "a", OK: true}, {Name: "b"}},
		"0 ok, 1 failure: c, 2 warnings: a, b": {{Name: "a"}, {Name: "b"}, {Name: "c", Fatal: true}},
	} {
		if got := summary(findings); got != want {
			t.Errorf("summary = %q, want %q", got, want)
		}
	}
}
