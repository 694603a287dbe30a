package mockmodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const script = `
scripts:
  - model: ^good$
    responses:
      - {thinking: let me see, text: I will call two tools, tool_calls: [{id: c1, name: add, arguments: {a: 1, b: 2}}, {id: c2, name: sub}], usage: {input_tokens: 7, output_tokens: 9}}
      - {text: cut off, stop: max_output_tokens}
      - {text: I will not, stop: refusal}
  - {model: ^limited$, responses: [{error: rate_limited, retry_after: 1500ms}, {error: overloaded}, {text: at last}]}
  - {model: ^long$, responses: [{error: prompt_too_long}]}
  - {model: ^key$, responses: [{error: auth}]}
  - {model: ^quota$, responses: [{error: quota}]}
  - {model: ^broken$, responses: [{error: transport}]}
  - {model: ^slow$, responses: [{text: never, delay: 1h}]}
`

// Both adapters, through the official SDKs, over HTTP, against the server.
func TestAdapters(t *testing.T) {
	t.Parallel()
	cfg, err := mockmodel.Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mockmodel.New(cfg))
	t.Cleanup(server.Close)
	providers := map[string]struct {
		p   model.Provider
		url string
	}{"openai": {openai.New(nil), server.URL + "/v1"}, "anthropic": {anthropic.New(nil), server.URL}}
	for name, x := range providers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exercise(t, x.p, x.url)
		})
	}
}

func request(url, name string, messages ...state.Message) model.Request {
	return model.Request{
		Model: name, BaseURL: url, APIKey: "sk-secret", Messages: append([]state.Message{state.UserText("hello")}, messages...),
		Tools: []model.ToolSpec{{Name: "add", Description: "adds", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"}}}`)}},
	}
}

func said(text string) state.Message {
	return state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: text}}}
}

func exercise(t *testing.T, p model.Provider, url string) {
	t.Helper()
	var deltas model.Delta
	resp, err := p.Generate(t.Context(), request(url, "good"), func(d model.Delta) {
		deltas.Text += d.Text
		deltas.Arguments += d.Arguments
	})
	if err != nil {
		t.Fatal(err)
	}
	var text, thinking string
	var calls []string
	for _, part := range resp.Parts {
		switch part.Type {
		case state.PartText:
			text += part.Text
		case state.PartThinking:
			thinking += part.Text
		case state.PartToolCall:
			calls = append(calls, part.ID+" "+part.Name+" "+part.Arguments)
		default:
		}
	}
	if text != "I will call two tools" || thinking != "let me see" || resp.Stop != model.StopToolCalls || resp.Model != "good" {
		t.Errorf("response = %+v", resp)
	}
	if diff := cmp.Diff([]string{`c1 add {"a":1,"b":2}`, "c2 sub {}"}, calls); diff != "" {
		t.Errorf("calls:\n%s", diff)
	}
	if resp.Usage.InputTokens != 7 || resp.Usage.OutputTokens != 9 {
		t.Errorf("usage = %+v", resp.Usage)
	}
	if deltas.Text != text || deltas.Arguments != `{"a":1,"b":2}{}` {
		t.Errorf("deltas = %+v", deltas)
	}
	// The history goes back: thinking, calls and their results.
	history := []state.Message{
		{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: "be brief"}}},
		{Role: state.RoleAssistant, Parts: resp.Parts}, state.ToolResult("c1", "3", false), state.ToolResult("c2", "no", true),
	}
	if resp, err = p.Generate(t.Context(), request(url, "good", history...), nil); err != nil || resp.Stop != model.StopMaxOutputTokens {
		t.Errorf("second response = %+v, %v", resp, err)
	}
	if resp, err = p.Generate(t.Context(), request(url, "good", said("1"), state.UserText("x"), said("2"), state.UserText("y")), nil); err != nil || resp.Stop != model.StopRefusal {
		t.Errorf("third response = %+v, %v", resp, err)
	}
	for _, tt := range []struct {
		name  string
		class model.Class
		after time.Duration
	}{
		{"limited", model.RateLimited, 1500 * time.Millisecond}, {"limited", model.Overloaded, 0}, {"long", model.PromptTooLong, 0},
		{"key", model.Auth, 0}, {"quota", model.Quota, 0}, {"broken", model.Transport, 0}, {"nobody", model.InvalidRequest, 0},
	} {
		_, err := p.Generate(t.Context(), request(url, tt.name), nil)
		var e *model.Error
		if !errors.As(err, &e) || e.Class != tt.class || e.RetryAfter != tt.after {
			t.Errorf("%s: error = %v (%+v), want %s", tt.name, err, e, tt.class)
		}
	}
	if resp, err := p.Generate(t.Context(), request(url, "limited"), nil); err != nil || (state.Message{Parts: resp.Parts}).Text() != "at last" {
		t.Errorf("after the failures: %+v, %v", resp, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var e *model.Error
	if _, err := p.Generate(ctx, request(url, "slow"), nil); !errors.As(err, &e) || e.Class != model.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
	cutEverywhere(t, p)
}

// A stream that is cut at any byte is a classified error, and never half a call.
func cutEverywhere(t *testing.T, p model.Provider) {
	t.Helper()
	whole := model.Scripted{Text: "hi", ToolCalls: []model.ScriptedCall{
		{ID: "c1", Name: "add", Arguments: json.RawMessage(`{"a":12345}`)}, {ID: "c2", Name: "sub", Arguments: json.RawMessage(`{"b":67890}`)},
	}}
	for cut := 1; ; cut += 7 {
		server := httptest.NewServer(mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{Responses: []mockmodel.Answer{{Scripted: whole, CutAfter: cut}}}}}))
		url := server.URL
		if _, ok := p.(*openai.Provider); ok {
			url += "/v1"
		}
		resp, err := p.Generate(t.Context(), request(url, "m"), nil)
		server.Close()
		for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
			if c.Arguments != `{"a":12345}` && c.Arguments != `{"b":67890}` {
				t.Fatalf("cut after %d bytes: half a call: %s", cut, c.Arguments)
			}
		}
		var e *model.Error
		if err == nil {
			if cut < 500 {
				t.Fatalf("cut after %d bytes: no error", cut)
			}
			return // nothing was cut any more
		}
		if !errors.As(err, &e) || e.Class != model.Transport {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(script))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = mockmodel.Parse(data) })
}
