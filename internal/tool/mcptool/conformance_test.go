package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// nodeModules names the folder with the npm packages that `make mcp-conformance` installs.
const nodeModules = "TURNPIKE_MCP_NODE_MODULES"

// scenario is set by the conformance suite, which then runs this program as the client under test.
const scenario = "MCP_CONFORMANCE_SCENARIO"

// npm returns the folder of the npm packages; ok is false if there is none.
func npm(t *testing.T) (dir string, ok bool) {
	t.Helper()
	dir = os.Getenv(nodeModules)
	if dir == "" {
		t.Logf("%s is not set: see make mcp-conformance", nodeModules)
	}
	return dir, dir != ""
}

// The official suite checks the client's messages and actions. Apart from OAuth, one client scenario is left
// out: it requires an answer to a question of the older protocol during the call, and this client answers when
// the call is made again.
func TestConformance(t *testing.T) {
	t.Parallel()
	dir, ok := npm(t)
	if !ok {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"initialize", "tools_call", "request-metadata", "sep-2322-client-request-state", "sse-retry",
		"http-standard-headers", "http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".bin", "node"), filepath.Join(dir, "@modelcontextprotocol", "conformance", "dist", "index.js"),
				"client", "--command", self, "--scenario", name, "--output-dir", t.TempDir())
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// conformanceClient calls every tool of the server that the suite names, as an agent whose users accept
// everything would.
func conformanceClient() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server := Server{URL: os.Args[1]}
	u, err := url.Parse(server.URL)
	if err != nil {
		return err
	}
	guard, err := guard.New([]string{u.Host})
	if err != nil {
		return err
	}
	c := New(guard, Config{})
	defer c.Close()
	listing, err := c.List(ctx, "", server, noSecrets)
	if err != nil {
		return err
	}
	var wanted struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"` //nolint:tagliatelle // in the suite's spelling
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &wanted); err != nil {
			return err
		}
	}
	arguments := map[string]json.RawMessage{"add_numbers": json.RawMessage(`{"a":5,"b":3}`)}
	for _, t := range listing {
		if t.Name == "json_schema_2020_12_tool" {
			arguments["json_schema_echo"] = json.RawMessage(`{"schema":` + string(t.Schema) + `}`)
		}
	}
	for _, call := range wanted.ToolCalls {
		if err := conform(ctx, c.Tool(server, call.Name, nil, listing, noSecrets), call.Arguments); err != nil {
			return err
		}
	}
	if len(wanted.ToolCalls) > 0 {
		return nil
	}
	for _, t := range listing {
		args := arguments[t.Name]
		if args == nil {
			args = json.RawMessage(`{"region":"us-west1"}`)
		}
		if err := conform(ctx, c.Tool(server, t.Name, nil, listing, noSecrets), args); err != nil {
			return err
		}
	}
	return nil
}

// conform makes one call and accepts all requests in it.
func conform(ctx context.Context, impl tool.Tool, args json.RawMessage) error {
	c := tool.Call{ID: "c1", Idempotent: true, Arguments: args}
	for range 10 {
		r, err := impl.Call(ctx, c)
		if err != nil {
			return err
		}
		if r.Ask == nil {
			fmt.Println(r.Content)
			return nil
		}
		c.Resume = &tool.Resume{State: r.Ask.State, Answer: actionAccept}
	}
	return errors.New("it asks without end")
}

// The client works with the reference server in TypeScript, over both transports, with the older protocol.
func TestReferenceServer(t *testing.T) {
	t.Parallel()
	dir, ok := npm(t)
	if !ok {
		return
	}
	s := Server{Command: []string{filepath.Join(dir, ".bin", "node"), filepath.Join(dir, "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"}}
	c := caller(t, Config{Confinement: testbed.Confinement(t, confine.Config{Read: []string{dir}})})
	for name, test := range map[string]struct {
		args string
		want tool.Result
	}{
		"echo":                   {`{"message":"hello"}`, tool.Result{Content: "Echo: hello"}},
		"get-sum":                {`{"a":2,"b":3}`, tool.Result{Content: "The sum of 2 and 3 is 5."}},
		"get-structured-content": {`{"location":"New York"}`, tool.Result{Content: `{"temperature":33,"conditions":"Cloudy","humidity":82}`}},
	} {
		if diff := cmp.Diff(test.want, try(t, ready(t, c, s, name), tool.Call{Arguments: json.RawMessage(test.args)})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if r := try(t, ready(t, c, s, "get-tiny-image"), tool.Call{}); len(r.Images) != 1 {
		t.Errorf("image = %+v", r)
	}
	told := make(chan string, 100)
	r := try(t, ready(t, c, s, "trigger-long-running-operation"), tool.Call{Arguments: json.RawMessage(`{"duration":0.2,"steps":2}`), Progress: func(text string) { told <- text }})
	if r.IsError || len(told) == 0 {
		t.Errorf("long operation = %+v, with %d notes", r, len(told))
	}

	ask := ready(t, c, s, "trigger-elicitation-request")
	call := tool.Call{Idempotent: true}
	r = try(t, ask, call)
	if r.Ask == nil {
		t.Fatalf("no question but %+v", r)
	}
	call.Resume = &tool.Resume{State: r.Ask.State, Answer: `{"name": "Ada"}`}
	if r = try(t, ask, call); r.IsError || !strings.Contains(r.Content, "Ada") {
		t.Errorf("after the answer = %+v", r)
	}
	call.Resume.Answer = "decline"
	if r = try(t, ask, call); !strings.Contains(r.Content, "declined") {
		t.Errorf("after the refusal = %+v", r)
	}

	// It does not begin before a person has visited the given page.
	barred := ready(t, c, s, "trigger-url-elicitation")
	call = tool.Call{Arguments: json.RawMessage(`{"url":"https://example.com/","errorPath":true}`)}
	r = try(t, barred, call)
	if r.Ask == nil || !strings.Contains(r.Ask.Question, "Open https://") {
		t.Fatalf("no question but %+v", r)
	}
	call.Resume = &tool.Resume{State: r.Ask.State, Answer: "cancel"}
	if r = try(t, barred, call); !r.IsError || !strings.Contains(r.Content, "answered: cancel") {
		t.Errorf("after the refusal = %+v", r)
	}
}
