package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// If a tenant is restricted after its agent was saved, the restriction applies from the next call of any kind.
func TestNarrowedTenant(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	guard, err := guard.New([]string{strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	web := agent.Tool{Name: "web", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: server.URL})}
	var settings atomic.Pointer[api.TenantSettings]
	settings.Store(&api.TenantSettings{})

	s := newDeployment(t)
	cfg := s.config()
	cfg.Kinds[toolspec.HTTP], cfg.Kinds[toolspec.MCP] = httptool.New(guard), never{t: t}
	cfg.Policy = func(_ context.Context, tenant string) (policy.Policy, error) {
		if tenant != state.DefaultTenant {
			t.Errorf("asks what tenant %q may, want that of the run", tenant)
		}
		return policy.Of(tenant, *settings.Load()), nil
	}
	s.work(cfg)
	scripted := agent.Model{Provider: "scripted", Name: "m", Responses: []model.Scripted{call("web", "c1"), {Text: "done"}}}
	ask := func() state.RunID {
		return s.submitTo(agent.Definition{Name: "a", Tools: []agent.Tool{web}, Model: scripted})
	}
	s.awaitReason(ask(), state.EndCompleted)
	if asked.Load() != 1 {
		t.Fatalf("the tool was called %d times", asked.Load())
	}

	settings.Store(&api.TenantSettings{Hosts: []string{"elsewhere.example"}})
	id := ask()
	s.awaitReason(id, state.EndCompleted)
	if got := s.transcript(id)[2]; asked.Load() != 1 || !strings.Contains(got, "was not called: host 127.0.0.1") {
		t.Errorf("%d calls, result %s", asked.Load(), got)
	}

	settings.Store(&api.TenantSettings{Models: []string{"claude-*"}})
	id = ask()
	if failed := s.awaitReason(id, state.EndModelError); !strings.Contains(failed.Error.Message, "model scripted/m is not among those") {
		t.Errorf("error %+v", failed.Error)
	}

	settings.Store(&api.TenantSettings{MCPCommands: []string{}})
	id = s.submitTo(agent.Definition{Name: "b", Tools: []agent.Tool{{Kind: toolspec.MCP, Own: tool.EncodeSettings(toolspec.Servers{Server: toolspec.Server{Command: []string{"sh"}}})}}, Model: scripted})
	if failed := s.awaitReason(id, state.EndInvalidAgent); !strings.Contains(failed.Error.Message, `tools[0]: program "sh"`) {
		t.Errorf("error %+v", failed.Error)
	}
}

// never is a kind of tool that must not be called.
type never struct {
	tool.Plain

	t *testing.T
}

func (never) Spec() tool.Spec { return toolspec.MCPSpec }

func (n never) Call(context.Context, tool.Bound, tool.Call) (tool.Result, error) {
	n.t.Error("called")
	return tool.Result{}, nil
}

func (n never) Pin(context.Context, tool.Bound) (json.RawMessage, error) {
	n.t.Error("the worker requested its tools")
	return nil, context.Canceled
}
