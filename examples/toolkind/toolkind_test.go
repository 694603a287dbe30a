package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/examples/toolkind/filekind"
	"github.com/turnpike-dev/turnpike/examples/toolkind/filespec"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A third-party kind of tool is accepted by a gateway and called by a worker, without a change elsewhere.
func TestToolKind(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"error=false today.txt", "error=false buy milk", "error=true  openat ../../etc/passwd: path escapes from parent", "Your notes say", "run.finished   completed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// put saves the agent on a gateway that knows some kinds, and returns the response.
func put(t *testing.T, kinds tool.Specs, definition string) (int, string) {
	t.Helper()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/v1/agents/a", strings.NewReader(definition))
	g.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A gateway without the kind refuses it by name. One with it reports the errors of a definition, key by key.
func TestGatewayRefuses(t *testing.T) {
	t.Parallel()
	kinds := toolspec.Builtin()
	kinds[filespec.Kind] = filespec.Spec
	const model = "name: a\nmodel: {provider: scripted}\n"
	for name, c := range map[string]struct {
		kinds      tool.Specs
		tool, want string
	}{
		"unknown kind":       {toolspec.Builtin(), "{name: t, kind: file, root: /srv}", `tools[0].kind: this process does not know tools of kind \"file\": use one of a2a, agent, client, go, handoff, http, human, mcp, memory, nats, provider, results`},
		"unknown key":        {kinds, "{name: t, kind: file, root: /srv, rot: x}", "tools[0].rot: unknown key: remove it, or use one of name, kind,"},
		"key of another":     {kinds, "{name: t, kind: file, root: /srv, url: x}", "tools[0].url: it is a key of tools of kind a2a, http, mcp, and this one has the kind file"},
		"its key on another": {kinds, "{name: t, kind: go, root: /srv}", "tools[0].root: it is a key of tools of kind file, and this one has the kind go"},
		"wrong type":         {kinds, "{name: t, kind: file, root: /srv, max_bytes: many}", "tools[0].max_bytes: a string is not valid here: write a whole number"},
		"wrong value":        {kinds, "{name: t, kind: file, root: srv}", `tools[0].root: \"srv\" is not an absolute path`},
		"not later":          {kinds, "{name: t, kind: file, root: /srv, async: true}", "tools[0].async: a tool of kind file cannot answer later"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, body := put(t, c.kinds, model+"tools: ["+c.tool+"]")
			if code != http.StatusBadRequest || !strings.Contains(body, "invalid_agent") || !strings.Contains(body, c.want) {
				t.Errorf("answer %d %s\nwant 400 with %s", code, body, c.want)
			}
		})
	}
	if code, body := put(t, kinds, model+"tools: [{name: t, kind: file, root: /srv}]"); code != http.StatusCreated {
		t.Errorf("answer %d %s, want 201", code, body)
	}
}

// Directories that a worker does not expose stay hidden, whatever a definition says.
func TestRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open, other := filepath.Join(dir, "open"), filepath.Join(dir, "other")
	for _, d := range []string{open, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "f"), []byte("twelve bytes"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(other, "f"), filepath.Join(open, "link")); err != nil {
		t.Fatal(err)
	}
	kind := filekind.New(open)
	for name, c := range map[string]struct {
		settings filespec.Settings
		path     string
		want     string // "": refused
	}{
		"file":        {filespec.Settings{Root: open}, "f", "twelve bytes"},
		"cut":         {filespec.Settings{Root: open, MaxBytes: 6}, "f", "twelve"},
		"link out":    {filespec.Settings{Root: open}, "link", ""},
		"other root":  {filespec.Settings{Root: other}, "f", ""},
		"around":      {filespec.Settings{Root: open + "/../other"}, "f", ""},
		"no such":     {filespec.Settings{Root: open}, "g", ""},
		"above":       {filespec.Settings{Root: open}, "../other/f", ""},
		"not a child": {filespec.Settings{Root: open + "er"}, "f", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tool.Bound{Definition: &tool.Definition{Name: "t", Kind: filespec.Kind}, Settings: &c.settings}
			got, err := kind.Call(t.Context(), b, tool.Call{Name: "t", Arguments: tool.EncodeSettings(map[string]string{"path": c.path})})
			if err != nil || got.IsError != (c.want == "") || !got.IsError && got.Content != c.want {
				t.Errorf("Call = %+v, %v, want %q", got, err, c.want)
			}
		})
	}
}
