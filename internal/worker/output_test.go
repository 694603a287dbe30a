//go:build !nosdk

package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// If a provider cannot enforce a schema together with tools, the model answers through an internal tool that
// users do not see. This also holds for a fallback model (D8).
func TestAnswerByTool(t *testing.T) {
	t.Parallel()
	call := func(name, args string) mockmodel.Response {
		return mockmodel.Response{Scripted: model.Scripted{ToolCalls: []model.ScriptedCall{{Name: name, Arguments: json.RawMessage(args)}}}}
	}
	wrong := call(model.FinalAnswer, `{"n": "seven"}`)
	wrong.Text = "So:"
	server, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{
		call("add", `{"a": 3}`), wrong, call(model.FinalAnswer, `{"n": 7}`),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s := newDeployment(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "7"}, nil })
	cfg := s.config()
	cfg.Providers["anthropic"], cfg.Providers["openai"], cfg.Providers["gemini"] = anthropic.New(anthropic.Config{Client: client}), openai.New(openai.Config{Client: client}), gemini.New(gemini.Config{Client: client})
	s.work(cfg)
	for name, m := range map[string]agent.Model{
		"anthropic": {Provider: "anthropic", Name: "claude-sonnet-4", BaseURL: h.URL},
		"openai":    {Provider: "openai", Name: "qwen3", BaseURL: h.URL + "/v1"},
		"gemini":    {Provider: "gemini", Name: "gemini-2.5-flash", BaseURL: h.URL},
	} {
		for _, fallback := range []bool{false, true} {
			def := agent.Definition{
				Name: name, Model: m, Tools: []agent.Tool{{Name: "add"}},
				OutputSchema: json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`),
			}
			if fallback {
				def.Name, def.Model = name+"-fallback", agent.Model{Provider: "scripted", Responses: []model.Scripted{{Error: model.Auth}}, Fallback: []agent.Model{m}}
			}
			st := s.await(s.submitTo(def), "the end", func(st state.State) bool { return st.Status.Terminal() })
			if st.Status != state.Completed || string(st.StructuredOutput) != `{"n":7}` || st.Turn != 3 {
				t.Errorf("%s is %s (%s, %s) in %d turns: %s", def.Name, st.Status, st.Transition.Reason, st.Transition.Detail, st.Turn, st.StructuredOutput)
			}
			log, err := s.store.Log(t.Context(), st.ID, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			retries := 0
			for _, e := range log {
				if e.Reason == state.OutputRetry {
					retries++
				}
				if e.Message == nil {
					continue
				}
				for _, c := range e.Message.Calls() {
					if c.Name == model.FinalAnswer {
						t.Errorf("%s has a call of %s in its log", def.Name, c.Name)
					}
				}
			}
			if retries != 1 {
				t.Errorf("%s has %d retries of its output, want 1", def.Name, retries)
			}
		}
	}
}
