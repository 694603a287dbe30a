package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// listener is a model that records the tools it is offered.
type listener struct {
	scripted.Provider

	before  func()
	mu      sync.Mutex
	offered [][]model.ToolSpec
}

func (l *listener) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if l.before != nil {
		l.before()
	}
	l.mu.Lock()
	l.offered = append(l.offered, r.Tools)
	l.mu.Unlock()
	return l.Provider.Generate(ctx, r, onDelta)
}

// services stands for the services behind the NATS tools and returns their descriptions.
type services func(names []string) map[string]tool.Description

var _ tool.Kind = services(nil)

func (services) Spec() tool.Spec { return toolspec.NATSSpec }

func (services) Pin(context.Context, tool.Bound) (json.RawMessage, error) {
	return nil, errors.ErrUnsupported
}

func (services) Expand(tool.Bound, json.RawMessage) ([]tool.Definition, error) {
	return nil, errors.ErrUnsupported
}

func (s services) Describe(_ context.Context, tools []tool.Bound) map[string]tool.Description {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return s(names)
}

func (services) Call(context.Context, tool.Bound, tool.Call) (tool.Result, error) {
	return tool.Result{Content: "rain"}, nil
}

// Where the definition has none, the model gets a NATS tool's description and schema from its service. Calls
// are validated against that schema, and an upgraded service takes effect.
func TestServicesDescribeTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		l := &listener{}
		l.before = func() { time.Sleep(2 * time.Second) } // longer than the answers of services hold
		s.model = l
		var (
			own    = json.RawMessage(`{"type":"object","title":"own"}`)
			first  = json.RawMessage(`{"type":"object","required":["city"]}`)
			second = json.RawMessage(`{"type":"object"}`)
			schema = first
		)
		cfg := s.config()
		cfg.Kinds[toolspec.NATS] = services(func(names []string) map[string]tool.Description {
			if diff := cmp.Diff([]string{"weather", "half", "broken", "gone"}, names); diff != "" {
				t.Errorf("requested:\n%s", diff)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.offered) > 0 {
				schema = second
			}
			return map[string]tool.Description{"weather": {Text: "tells", Schema: schema}, "half": {Text: "other", Schema: first}, "broken": {Text: "tells", Schema: json.RawMessage(`{"type":7}`)}}
		})
		s.work(cfg)
		call := []model.ScriptedCall{{Name: "weather", ID: "c1", Arguments: json.RawMessage(`{}`)}}
		id := s.submit(state.Limits{}, []agent.Tool{
			{Name: "weather", Kind: toolspec.NATS}, {Name: "half", Kind: toolspec.NATS, Schema: own}, {Name: "full", Kind: toolspec.NATS, Description: "own", Schema: own},
			{Name: "broken", Kind: toolspec.NATS}, {Name: "gone", Kind: toolspec.NATS}, {Name: "local"},
		}, model.Scripted{ToolCalls: call}, model.Scripted{ToolCalls: call}, model.Scripted{Text: "done"})
		s.awaitReason(id, state.EndCompleted)

		offered := func(weather json.RawMessage) []model.ToolSpec {
			return []model.ToolSpec{
				{Name: "weather", Description: "tells", Schema: weather}, {Name: "half", Description: "other", Schema: own}, {Name: "full", Description: "own", Schema: own},
				{Name: "broken", Description: "tells", Schema: second}, {Name: "gone", Schema: second}, {Name: "local", Schema: second},
			}
		}
		if diff := cmp.Diff([][]model.ToolSpec{offered(first), offered(second), offered(second)}, l.offered); diff != "" {
			t.Errorf("offered:\n%s", diff)
		}
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var failed []bool
		for _, e := range log {
			if e.Type == state.EntryTool {
				failed = append(failed, e.IsError)
			}
		}
		if diff := cmp.Diff([]bool{true, false}, failed); diff != "" {
			t.Errorf("failed calls:\n%s", diff)
		}
	})
}

// A worker asks the services of an agent once a second, not at each of its turns, and uses what it knows between.
func TestServicesAreAskedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		l := &listener{}
		s.model = l
		var asked atomic.Int32
		cfg := s.config()
		cfg.Kinds[toolspec.NATS] = services(func([]string) map[string]tool.Description {
			asked.Add(1)
			return map[string]tool.Description{"weather": {Text: "tells"}}
		})
		s.work(cfg)
		run := func() {
			var turns []model.Scripted
			for i := range 5 {
				turns = append(turns, model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "weather", ID: fmt.Sprint("c", i), Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}}})
			}
			s.awaitReason(s.submit(state.Limits{}, []agent.Tool{{Name: "weather", Kind: toolspec.NATS}}, append(turns, model.Scripted{Text: "done"})...), state.EndCompleted)
		}
		for want := range int32(2) {
			run()
			if n := asked.Load(); n != want+1 {
				t.Errorf("the worker asked the service %d times, want %d", n, want+1)
			}
			time.Sleep(2 * time.Second)
		}
		for i, offered := range l.offered {
			if offered[0].Description != "tells" {
				t.Errorf("turn %d: the model was offered %q", i, offered[0].Description)
			}
		}
	})
}

// source is a kind of source whose lists cannot be used.
type source struct {
	tool.Plain

	pin    func() (json.RawMessage, error)
	expand func() ([]tool.Definition, error)
}

func (source) Spec() tool.Spec { return toolspec.MCPSpec }

func (s source) Pin(context.Context, tool.Bound) (json.RawMessage, error)      { return s.pin() }
func (s source) Expand(tool.Bound, json.RawMessage) ([]tool.Definition, error) { return s.expand() }

func (source) Call(context.Context, tool.Bound, tool.Call) (tool.Result, error) {
	return tool.Result{}, nil
}

// A run whose tools can never be listed or described ends at the first attempt with invalid_agent, and its error names
// the tool and the cause.
func TestToolsThatCannotBeListed(t *testing.T) {
	t.Parallel()
	pinned := func() (json.RawMessage, error) { return json.RawMessage(`{}`), nil }
	mcp := agent.Tool{Kind: toolspec.MCP, Own: json.RawMessage(`{"url": "http://127.0.0.1:1"}`)}
	probed := agent.Tool{Name: "local", Probe: &tool.Probe{Name: "look", Kind: toolspec.MCP, Own: json.RawMessage(`{"url": "http://127.0.0.1:1", "allow": ["look"]}`)}}
	large := json.RawMessage(`{"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a?b){900}$"}, "y": {"type": "string", "pattern": "^(b?a){900}$"}}}`)
	for name, c := range map[string]struct {
		kind  tool.Kind
		tools []agent.Tool
		want  []string
	}{
		"expand":       {source{pin: pinned, expand: func() ([]tool.Definition, error) { return nil, errors.New("no such list") }}, []agent.Tool{mcp}, []string{"tools[0]: the list of tools that this version of the agent has pinned cannot be used: no such list"}},
		"expand probe": {source{pin: pinned, expand: func() ([]tool.Definition, error) { return nil, errors.New("no such list") }}, []agent.Tool{probed}, []string{"tools[0].probe: ", "no such list"}},
		"expand panic": {source{pin: pinned, expand: func() ([]tool.Definition, error) { panic("ouch") }}, []agent.Tool{mcp}, []string{"tools[0]: ", "panicked: ouch"}},
		"pin panic":    {source{pin: func() (json.RawMessage, error) { panic("ouch") }}, []agent.Tool{mcp}, []string{"panicked: ouch"}},
		"describe": {services(func(names []string) map[string]tool.Description {
			said := map[string]tool.Description{}
			for _, n := range names {
				said[n] = tool.Description{Text: "tells", Schema: large}
			}
			return said
		}), manyTools(30), []string{"descriptions and schemas that services give", "regular expressions"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			cfg := s.config()
			cfg.Kinds[toolspec.MCP] = c.kind
			if _, described := c.kind.(services); described {
				cfg.Kinds[toolspec.NATS] = c.kind
			}
			s.work(cfg)
			st := s.awaitReason(s.submit(state.Limits{}, c.tools, model.Scripted{Text: "done"}), state.EndInvalidAgent)
			if st.Error == nil {
				t.Fatal("the run has no error")
			}
			for _, part := range c.want {
				if !strings.Contains(st.Error.Message, part) {
					t.Errorf("the error is %q, want %q in it", st.Error.Message, part)
				}
			}
			if log, err := s.store.Log(t.Context(), st.ID, 0, 0); err != nil || log[len(log)-1].Attempt > 1 {
				t.Errorf("the run ended at attempt %d, %v; want the first", log[len(log)-1].Attempt, err)
			}
		})
	}
}

func manyTools(n int) []agent.Tool {
	var all []agent.Tool
	for i := range n {
		all = append(all, agent.Tool{Name: fmt.Sprint("tool", i), Kind: toolspec.NATS})
	}
	return all
}
