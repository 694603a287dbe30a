package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Chat completions get the reasoning beside each call since the last user message, and none from before it: servers
// require it there, and refuse or ignore it elsewhere. The Responses API gets all of it.
func TestReasoningOfEarlierTurns(t *testing.T) {
	t.Parallel()
	step := func(n int, opaque ...string) []state.Message {
		m := state.Message{Role: state.RoleAssistant}
		for _, o := range opaque {
			m.Parts = append(m.Parts, state.Part{Type: state.PartThinking, Text: fmt.Sprint("thought ", n), Opaque: json.RawMessage(o), OpaqueBy: "openai m"})
		}
		id := fmt.Sprint("c", n)
		m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: id, Name: "f", Arguments: "{}"})
		return []state.Message{m, state.ToolResult(id, "ok", false)}
	}
	history := func(opaque func(n int) []string) []state.Message {
		all := []state.Message{state.UserText("one")}
		all = append(all, step(1, opaque(1)...)...)
		all = append(all, state.UserText("two"))
		all = append(all, step(2, opaque(2)...)...)
		return append(all, step(3, opaque(3)...)...)
	}
	var sent struct {
		Messages []struct {
			Reasoning string `json:"reasoning_content"`
		} `json:"messages"`
		Input []struct {
			Encrypted string `json:"encrypted_content"`
		} `json:"input"`
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &sent)
		}
		if err != nil {
			t.Error(err)
		}
		http.Error(w, `{"error":{"message":"enough"}}`, http.StatusBadRequest)
	}))
	t.Cleanup(h.Close)
	for api, tt := range map[model.API]struct {
		opaque func(n int) []string
		want   []string
	}{
		model.APIChat: {func(int) []string { return []string{`"reasoning_content"`} }, []string{"thought 2", "thought 3"}},
		model.APIResponses: {func(n int) []string {
			const item = `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"sealed %d%s"}`
			return []string{fmt.Sprintf(item, n, "a"), fmt.Sprintf(item, n, "b")}
		}, []string{"sealed 1a", "sealed 1b", "sealed 2a", "sealed 2b", "sealed 3a", "sealed 3b"}},
	} {
		sent.Messages, sent.Input = nil, nil
		r := model.Request{Model: "m", BaseURL: h.URL + "/v1", API: api, Messages: history(tt.opaque)}
		_, _ = openai.New(openai.Config{}).Generate(t.Context(), r, nil)
		var got []string
		for _, m := range sent.Messages {
			if m.Reasoning != "" {
				got = append(got, m.Reasoning)
			}
		}
		for _, i := range sent.Input {
			if i.Encrypted != "" {
				got = append(got, i.Encrypted)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: reasoning sent (-want +got):\n%s", api, diff)
		}
	}
}

// Thinking is the summary, else the text that other servers send. It goes back only if it is sealed, always with a
// summary, which the API requires. A call without arguments has an empty object.
func TestReasoningItems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ fields, text, back string }{
		"summary":         {`"summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"content":[{"type":"reasoning_text","text":"c"}]`, "a\n\nb", ""},
		"text":            {`"summary":[],"content":[{"type":"reasoning_text","text":"c"}]`, "c", ""},
		"nothing":         {`"summary":[]`, "none", ""},
		"sealed":          {`"summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"gAA="`, "a", `{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"gAA="}`},
		"sealed text":     {`"summary":[],"content":[{"type":"reasoning_text","text":"c"}],"encrypted_content":"gAA="`, "c", `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"gAA="}`},
		"without summary": {`"encrypted_content":"gAA="`, "", `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"gAA="}`},
	} {
		base, body := exchange(t, itemDone(`{"type":"reasoning","id":"r",`+tt.fields+`}`), itemDone(`{"type":"function_call","id":"f","call_id":"a","name":"f","arguments":" "}`), completed)
		r := model.Request{Model: "gpt-5-mini", API: model.APIResponses, BaseURL: base, Messages: []state.Message{state.UserText("hi")}}
		p := openai.New(openai.Config{})
		resp, err := p.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := "none"
		for _, p := range resp.Parts {
			if p.Type == state.PartThinking {
				said = p.Text
			}
			if p.Type == state.PartToolCall && p.Arguments != "{}" {
				t.Errorf("%s: the call has the arguments %q", name, p.Arguments)
			}
		}
		if said != tt.text {
			t.Errorf("%s: the thinking is %q, want %q", name, said, tt.text)
		}
		r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.UserText("And?"))
		if _, err := p.Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		var want any
		_ = json.Unmarshal([]byte(tt.back), &want) // nil without one
		input := (*body)["input"].([]any)
		got := input[1]
		if len(input) == 3 { // the call and two messages
			got = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: sent back (-want +got):\n%s", name, diff)
		}
	}
}
