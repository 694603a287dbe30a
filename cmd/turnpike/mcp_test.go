package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMCPLs(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	for _, name := range []string{"b", "a tool"} {
		s.AddTool(&mcp.Tool{Name: name, Description: "does it\nwell", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "agent.yaml")
	def := "name: a\nmodel: {provider: scripted}\ntools: [{kind: mcp, name: x, url: \"" + h.URL + "\"}]"
	if err := os.WriteFile(file, []byte(def), 0o600); err != nil {
		t.Fatal(err)
	}
	ls := func(c mcpLsCmd, asJSON bool) string {
		t.Helper()
		c.Timeout = 20 * time.Second
		var out bytes.Buffer
		if err := c.Run(&env{ctx: context.Background(), out: &out, json: asJSON}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := strings.ReplaceAll(ls(mcpLsCmd{Server: []string{file}}, false), h.URL, "URL")
	want := `URL
pin 629e7031573be84dbc410086be664060107d5494166da84fec272d65cedf533b
TOOL               NAME THERE  DESCRIPTION
x_a_tool_bac657bf  a tool      does it…
x_b                b           does it…
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of an agent:\n%s", diff)
	}
	var list []mcpListing
	if err := json.Unmarshal([]byte(ls(mcpLsCmd{Server: []string{h.URL}, Allow: []string{"b"}}, true)), &list); err != nil || len(list) != 1 || len(list[0].Tools) != 1 {
		t.Fatalf("of a URL: %+v, %v", list, err)
	}
	if strings.Contains(got, list[0].Pin) {
		t.Error("the hash does not cover the allowed tools")
	}
	if err := (&mcpLsCmd{Server: []string{h.URL}, Allow: []string{"c"}, Timeout: time.Minute}).Run(&env{ctx: context.Background()}); err == nil || !strings.Contains(err.Error(), `no tool "c"`) {
		t.Errorf("of a missing tool: %v", err)
	}
}
