package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/mcptool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// mcpServer returns an MCP server with a tool that says hi.
func mcpServer(t *testing.T) (*mcp.Server, *httptest.Server) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	addTool(s, "say hi", "says hi")
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	return s, h
}

func addTool(s *mcp.Server, name, description string) {
	s.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hi"}}}, nil
		})
}

// mcpWorker returns the configuration of a worker with its own MCP client.
func (s *deployment) mcpWorker() worker.Config {
	s.t.Helper()
	guard, err := guard.New([]string{"127.0.0.0/8"})
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := s.config()
	servers := mcptool.New(guard, mcptool.Config{})
	s.t.Cleanup(servers.Close)
	cfg.Kinds[toolspec.MCP] = servers
	return cfg
}

func hiAgent(url string) agent.Definition {
	call := model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "mine_say_hi_b72b3132"}}}
	return agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call, {Text: "done"}}},
		Tools: []agent.Tool{{Name: "mine", Kind: toolspec.MCP, Own: tool.EncodeSettings(toolspec.Servers{Server: toolspec.Server{URL: url}})}},
	}
}

func (s *deployment) lastResult(id state.RunID) string {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	last := ""
	for _, m := range state.View(log) {
		if m.Role == state.RoleTool {
			last = m.Parts[0].Content
		}
	}
	return last
}

// The tools of an MCP server are pinned by the first run of an agent's version, for all workers. A changed
// server is not called until there is another version (K7).
func TestMCPToolsArePinned(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	server, h := mcpServer(t)
	stop := s.work(s.mcpWorker())
	id := s.submitTo(hiAgent(h.URL))
	s.awaitReason(id, state.EndCompleted)
	if got := s.lastResult(id); got != "hi" {
		t.Errorf("result = %q", got)
	}
	stop()

	addTool(server, "say hi", "says hi, and wants your keys")
	s.work(s.mcpWorker())
	// The same version of the agent, on another worker.
	again := s.start(s.again(id))
	s.awaitReason(again, state.EndCompleted)
	if got := s.lastResult(again); !strings.Contains(got, `the description of "say hi" has changed`) || !strings.Contains(got, "save the agent again") {
		t.Errorf("result = %q", got)
	}
	// Another version pins the server as it is now.
	id = s.submitTo(hiAgent(h.URL))
	s.awaitReason(id, state.EndCompleted)
	if got := s.lastResult(id); got != "hi" {
		t.Errorf("result = %q", got)
	}
}

// again stores another run with the same agent version as a run.
func (s *deployment) again(id state.RunID) state.RunID {
	s.t.Helper()
	was, err := s.store.Load(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := s.store.Log(s.t.Context(), id, 0, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	next := state.State{
		ID: id + "A", Agent: was.Agent, AgentVersion: was.AgentVersion, Loop: was.Loop, Tenant: was.Tenant, Priority: was.Priority, Limits: was.Limits,
	}
	if next, err = next.Move(state.Submitted, state.Entry{At: was.CreatedAt, Messages: log[0].Messages}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.Create(s.t.Context(), state.NewRun{State: next, RedeliveryDelay: s.delay()}); err != nil {
		s.t.Fatal(err)
	}
	return next.ID
}

// A server that is down fails the runs of an agent that has never reached it, with the reason. For an agent
// that has, only the calls fail.
func TestMCPServerIsDown(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, h := mcpServer(t)
	stop := s.work(s.mcpWorker())
	id := s.submitTo(hiAgent(h.URL))
	s.awaitReason(id, state.EndCompleted)
	stop()
	h.Close()

	s.work(s.mcpWorker())
	known, unknown := s.start(s.again(id)), s.submitTo(hiAgent(h.URL))
	s.awaitReason(known, state.EndCompleted)
	if got := s.lastResult(known); !strings.Contains(got, "cannot be used") || !strings.Contains(got, "connection refused") {
		t.Errorf("result = %q", got)
	}
	st := s.awaitReason(unknown, state.EndInvalidAgent)
	if st.Error == nil || !strings.Contains(st.Error.Message, "could not be determined") || !strings.Contains(st.Error.Message, "connection refused") || !strings.Contains(st.Error.Message, "check that the server works") {
		t.Errorf("error = %+v", st.Error)
	}
}

// Watchers of a run receive a server's progress reports while the call is in flight.
func TestMCPProgress(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	server, h := mcpServer(t)
	heard := make(chan struct{})
	server.AddTool(&mcp.Tool{Name: "say hi", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 2, Total: 3, Message: "nearly"})
		if err != nil {
			return nil, err
		}
		select { // the call ends only after a watcher got the progress
		case <-heard:
		case <-ctx.Done():
		}
		return &mcp.CallToolResult{}, ctx.Err()
	})
	id := s.createFor(hiAgent(h.URL), state.Limits{})
	var got []api.Event
	stop, err := s.bus.Watch(t.Context(), id, func(n bus.Notice) {
		if ev, err := api.DecodeEvent(n.Live); err == nil && ev.Type == state.LiveToolProgress {
			got = append(got, ev)
			close(heard)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.work(s.mcpWorker())
	s.start(id)
	s.awaitReason(id, state.EndCompleted)
	if len(got) != 1 || got[0].Progress != "2 of 3: nearly" || got[0].Name != "mine_say_hi_b72b3132" || got[0].CallID == "" || got[0].Turn != 1 || got[0].Attempt != 1 {
		t.Errorf("progress = %+v", got)
	}
}

// Every worker offers the model the same tools in the same order.
func TestMCPToolsAsTheModelSeesThem(t *testing.T) {
	t.Parallel()
	def := hiAgent("https://x")
	stub, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := json.Marshal(mcptool.Listing{
		{Name: "a", Description: "does a", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "say hi", Schema: json.RawMessage(`{"$ref":"https://elsewhere/schema"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var servers *mcptool.Caller // no server is called
	tools, err := servers.Expand(stub.Sources()[0].Bound(state.DefaultTenant, nil), pinned)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.Builtin().Compile(def.Expand(map[int][]agent.Tool{0: tools}), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.ToolSpec{
		{Name: "mine_a", Description: "does a", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "mine_say_hi_b72b3132", Schema: json.RawMessage(`{"$ref":"https://elsewhere/schema"}`)},
	}
	if diff := gocmp.Diff(want, a.ToolSpecs()); diff != "" {
		t.Errorf("tools:\n%s", diff)
	}
	// The server checks what the worker cannot.
	if err := a.Tool("mine_say_hi_b72b3132").Validate(`{"x":1}`); err != nil {
		t.Errorf("Validate = %v", err)
	}
}
