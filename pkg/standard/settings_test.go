package standard_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each provider sends its supported settings in the documented fields, with the extra fields next to them.
func TestSettingsOnTheWire(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	tuned := model.Settings{
		Temperature: new(0.2), TopP: new(0.9), TopK: new(int64(40)), Stop: []string{"END"}, Seed: new(int64(7)),
		ToolChoice: model.ToolChoice{Tool: "f"}, ParallelToolCalls: new(false), ServiceTier: model.TierPriority,
	}
	mode := func(m model.ToolMode) model.Settings { return model.Settings{ToolChoice: model.ToolChoice{Mode: m}} }
	parse := func(extra string) (s model.Settings) {
		if err := json.Unmarshal([]byte(extra), &s.Extra); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		provider, model string
		api             model.API
		settings        model.Settings
		effort          model.Effort
		bare            bool
		want            string // the difference to a request without settings
	}{
		{"anthropic", "claude-haiku-4-5", "", tuned, "", false, `{"temperature":0.2,"top_p":0.9,"top_k":40,"stop_sequences":["END"],"service_tier":"auto",
			"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}}`},
		{"anthropic", "claude-haiku-4-5", "", model.Settings{ServiceTier: model.TierStandard, ParallelToolCalls: new(true)}, "", false, `{"service_tier":"standard_only",
			"tool_choice":{"type":"auto","disable_parallel_tool_use":false}}`},
		{"anthropic", "claude-haiku-4-5", "", mode(model.ToolsAny), "", false, `{"tool_choice":{"type":"any"}}`},
		{"anthropic", "claude-haiku-4-5", "", mode(model.ToolsNone), "", false, `{"tool_choice":{"type":"none"}}`},
		{"anthropic", "claude-haiku-4-5", "", mode(model.ToolsAuto), "", true, `{}`},
		{"anthropic", "claude-opus-4-7", "", model.Settings{}, model.EffortXHigh, false, `{"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"xhigh"}}`},
		{"anthropic", "claude-haiku-4-5", "", parse(`{"metadata":{"user_id":"u"},"inference_geo":"eu","system":"x","output_config":{"format":1}}`), "", false, `{"metadata":{"user_id":"u"},"inference_geo":"eu"}`},

		{"openai", "gpt-4.1", model.APIResponses, tuned, "", false, `{"temperature":0.2,"top_p":0.9,"service_tier":"priority","parallel_tool_calls":false,
			"tool_choice":{"type":"function","name":"f"}}`},
		{"openai", "gpt-4.1", model.APIResponses, mode(model.ToolsAny), "", false, `{"tool_choice":"required"}`},
		{"openai", "gpt-4.1", model.APIResponses, mode(model.ToolsNone), "", false, `{"tool_choice":"none"}`},
		{"openai", "gpt-4.1", model.APIResponses, tuned, "", true, `{"temperature":0.2,"top_p":0.9,"service_tier":"priority"}`},
		{"openai", "gpt-5.6-sol", model.APIResponses, model.Settings{}, model.EffortMax, false, `{"reasoning":{"effort":"max"}}`},
		{"openai", "gpt-5.2-pro", model.APIResponses, model.Settings{}, model.EffortXHigh, false, `{"reasoning":{"effort":"xhigh"}}`},
		{"openai", "gpt-5.2", model.APIResponses, parse(`{"text":{"verbosity":"low","format":2},"reasoning":{"summary":"auto"},"logit_bias":{"50256":-100},"store":true,"Stream":false}`), model.EffortLow, false,
			`{"text":{"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"logit_bias":{"50256":-100}}`},

		{"openai", "gpt-4.1", model.APIChat, tuned, "", false, `{"temperature":0.2,"top_p":0.9,"stop":["END"],"seed":7,"service_tier":"priority","parallel_tool_calls":false,
			"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		{"openai", "gpt-4.1", model.APIChat, model.Settings{ServiceTier: model.TierFlex, ToolChoice: model.ToolChoice{Mode: model.ToolsAny}}, "", false, `{"service_tier":"flex","tool_choice":"required"}`},
		{"openai", "gpt-4.1", model.APIChat, model.Settings{ServiceTier: model.TierStandard, ToolChoice: model.ToolChoice{Mode: model.ToolsAuto}}, "", false, `{"service_tier":"default","tool_choice":"auto"}`},
		{"openai", "gpt-5.2", model.APIChat, parse(`{"prompt_cache_retention":"24h"}`), model.EffortXHigh, false, `{"reasoning_effort":"xhigh","prompt_cache_retention":"24h"}`},

		{"gemini", "gemini-2.5-flash", "", tuned, "", false, `{"generationConfig":{"temperature":0.2,"topP":0.9,"topK":40,"stopSequences":["END"],"seed":7},"serviceTier":"priority",
			"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}}`},
		{"gemini", "gemini-2.5-flash", "", mode(model.ToolsNone), "", false, `{"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}`},
		{"gemini", "gemini-2.5-flash", "", mode(model.ToolsAny), "", true, `{}`},
		{"gemini", "gemini-2.5-flash", "", parse(`{"generationConfig":{"presencePenalty":0.5,"max_output_tokens":9},"safetySettings":[{"threshold":"BLOCK_NONE"}],"contents":[]}`), "", false,
			`{"generationConfig":{"presencePenalty":0.5},"safetySettings":[{"threshold":"BLOCK_NONE"}]}`},
	} {
		t.Run(tt.provider+" "+string(tt.api)+" "+tt.model, func(t *testing.T) {
			t.Parallel()
			r := model.Request{Model: tt.model, API: tt.api, Messages: []state.Message{state.UserText("hi")}, Settings: tt.settings, Reasoning: tt.effort}
			if !tt.bare {
				r.Tools = []model.ToolSpec{{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)}}
			}
			got, plain := asked(t, providers[tt.provider], r), r
			plain.Settings, plain.Reasoning = model.Settings{}, ""
			without := asked(t, providers[tt.provider], plain)
			for key, v := range without {
				if string(v) == "{}" && string(got[key]) != "{}" {
					continue // Gemini's generationConfig
				}
				if string(got[key]) != string(v) {
					t.Errorf("%s is %s with settings and %s without", key, got[key], v)
				}
				delete(got, key)
			}
			have, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if want := sorted(t, tt.want); sorted(t, string(have)) != want {
				t.Errorf("settings are sent as\n%s\nwant\n%s", have, want)
			}
		})
	}
}

// The fields in the docs' table are those in requests.
func TestSettingsFields(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range model.BuiltinSpecs() {
		for _, taken := range spec.Takes {
			r := model.Request{
				Model: map[string]string{"anthropic": "claude-opus-4-6", "openai": "gpt-5.2", "gemini": "gemini-3-pro-preview"}[name], API: taken.API,
				Messages: []state.Message{state.UserText("hi")}, Tools: []model.ToolSpec{{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)}},
			}
			switch taken.Setting {
			case "cache": // it is in blocks of the prompt, or at OpenAI only: see TestPromptCache and TestCacheKey
				continue
			case "temperature":
				r.Temperature = new(0.2)
			case "top_p":
				r.TopP = new(0.2)
			case "top_k":
				r.TopK = new(int64(2))
			case "stop":
				r.Stop = []string{"END"}
			case "seed":
				r.Seed = new(int64(2))
			case "tool_choice":
				r.ToolChoice.Mode = model.ToolsAny
			case "parallel_tool_calls":
				r.ParallelToolCalls = new(false)
			case "service_tier":
				r.ServiceTier = model.TierPriority
			case "reasoning":
				r.Reasoning = model.EffortHigh
			default:
				t.Fatalf("no value for %s", taken.Setting)
			}
			at := asked(t, providers[name], r)
			path := strings.Split(taken.Field, ".")
			for _, key := range path[:len(path)-1] {
				var inner map[string]json.RawMessage
				if err := json.Unmarshal(at[key], &inner); err != nil {
					t.Errorf("%s sends %s not as %s", name, taken.Setting, taken.Field)
				}
				at = inner
			}
			if len(at[path[len(path)-1]]) == 0 {
				t.Errorf("%s sends %s not as %s", name, taken.Setting, taken.Field)
			}
		}
	}
}

// asked returns the body for a request. The response does not matter.
func asked(t *testing.T, p model.Provider, r model.Request) map[string]json.RawMessage {
	t.Helper()
	var body []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer h.Close()
	r.BaseURL = h.URL
	_, _ = p.Generate(t.Context(), r, nil)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return fields
}

func sorted(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
