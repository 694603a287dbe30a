package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

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

	mu      sync.Mutex
	offered [][]model.ToolSpec
}

func (l *listener) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
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
	s := newDeployment(t)
	l := &listener{}
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
}
