package gemini_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asked returns the body for a request.
func asked(t *testing.T, r model.Request) string {
	t.Helper()
	var body []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream(piece(`{"text":"a"}`, stop)))
	}))
	t.Cleanup(h.Close)
	r.BaseURL = h.URL
	if _, err := gemini.New(gemini.Config{}).Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func say(role state.Role, parts ...state.Part) state.Message {
	return state.Message{Role: role, Parts: parts}
}

func result(id, content string, images ...state.Image) state.Part {
	return state.Part{Type: state.PartToolResult, CallID: id, Content: content, Images: images}
}

// equal compares JSON.
func equal(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
		t.Fatalf("not JSON: %s\n%s", got, want)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, got)
	}
}

// A signature goes back to the model's family; the first call of another model gets Google's placeholder
// signature (A12).
func TestContents(t *testing.T) {
	t.Parallel()
	failed := result("c4", " ")
	failed.IsError = true
	history := []state.Message{
		say(state.RoleSystem, text("Be brief.")), say(state.RoleUser, text("Look"), state.Part{Type: state.PartImage, MediaType: "image/png", Data: "AAAA"}),
		say(state.RoleAssistant, signed(state.Part{Type: state.PartThinking, Text: "hm"}, "dGhpbms="), state.Part{Type: state.PartThinking, Text: "unsigned"},
			text("I will."), signed(call("c1", "f", `{"id":12345678901234567890}`), "Y2FsbA=="), call("c2", "g", "{}")),
		say(state.RoleTool, result("c1", "one", state.Image{MediaType: "image/jpeg", Data: "BBBB"})), say(state.RoleTool, result("c2", "two", state.Image{URL: "https://x.example/a.png"})),
		say(state.RoleSystem, text("Mind the gap.")),
		say(state.RoleAssistant, text(""), call("c3", "f", "[broken"), call("c4", "g", "{}")),
		say(state.RoleTool, result("c3", "", state.Image{MediaType: "image/png", Data: "not base64"}), failed), say(state.RoleUser, text("And?")),
	}
	for name, test := range map[string]struct{ model, contents string }{
		"family": {"models/gemini-3-pro-preview", `[
			{"role":"user","parts":[{"text":"Look"},{"inlineData":{"data":"AAAA","mimeType":"image/png"}}]},
			{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"dGhpbms="},{"text":"I will."},
				{"functionCall":{"id":"c1","name":"f","args":{"id":12345678901234567890}},"thoughtSignature":"Y2FsbA=="},{"functionCall":{"id":"c2","name":"g"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"one"},"parts":[{"inlineData":{"data":"BBBB","mimeType":"image/jpeg"}}]}},
				{"functionResponse":{"id":"c2","name":"g","response":{"output":"two"}}},{"fileData":{"fileUri":"https://x.example/a.png","mimeType":"image/png"}}]},
			{"role":"model","parts":[{"functionCall":{"id":"c3","name":"f","args":{"invalid_arguments":"[broken"}},"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},{"functionCall":{"id":"c4","name":"g"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c3","name":"f","response":{"output":""}}},{"functionResponse":{"id":"c4","name":"g","response":{"error":"The tool failed without a message."}}},{"text":"And?"}]}]`},
		"another": {"gemini-2.5-flash", `[
			{"role":"user","parts":[{"text":"Look"},{"inlineData":{"data":"AAAA","mimeType":"image/png"}}]},
			{"role":"model","parts":[{"text":"I will."},{"functionCall":{"id":"c1","name":"f","args":{"id":12345678901234567890}}},{"functionCall":{"id":"c2","name":"g"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"one"}}},{"functionResponse":{"id":"c2","name":"g","response":{"output":"two"}}},
				{"inlineData":{"data":"BBBB","mimeType":"image/jpeg"}},{"fileData":{"fileUri":"https://x.example/a.png","mimeType":"image/png"}}]},
			{"role":"model","parts":[{"functionCall":{"id":"c3","name":"f","args":{"invalid_arguments":"[broken"}}},{"functionCall":{"id":"c4","name":"g"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c3","name":"f","response":{"output":""}}},{"functionResponse":{"id":"c4","name":"g","response":{"error":"The tool failed without a message."}}},{"text":"And?"}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body struct {
				SystemInstruction, Contents json.RawMessage
			}
			if err := json.Unmarshal([]byte(asked(t, model.Request{Model: test.model, Messages: history})), &body); err != nil {
				t.Fatal(err)
			}
			equal(t, string(body.Contents), test.contents)
			equal(t, string(body.SystemInstruction), `{"role":"user","parts":[{"text":"Be brief."},{"text":"Mind the gap."}]}`)
		})
	}
}

// Schemas and numbers are sent exactly as written.
func TestExact(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"zeta":{"type":"integer","maximum":12345678901234567890},"alpha":{}}}`
	r := model.Request{Model: "gemini-3-flash-preview", MaxOutputTokens: 1 << 40, OutputSchema: json.RawMessage(schema), Messages: []state.Message{
		state.UserText("hi"), say(state.RoleAssistant, call("c", "f", `{"n":12345678901234567890}`)), say(state.RoleTool, result("c", "x")),
	}, Tools: []model.ToolSpec{{Name: "f", Description: "d", Schema: json.RawMessage(schema)}}}
	var body struct {
		Contents         json.RawMessage
		Tools            json.RawMessage
		GenerationConfig json.RawMessage
	}
	if err := json.Unmarshal([]byte(asked(t, r)), &body); err != nil {
		t.Fatal(err)
	}
	if want := `[{"functionDeclarations":[{"description":"d","name":"f","parametersJsonSchema":` + schema + `}]}]`; string(body.Tools) != want {
		t.Errorf("tools %s", body.Tools)
	}
	if want := `{"maxOutputTokens":2147483647,"responseJsonSchema":` + schema + `,"responseMimeType":"application/json"}`; string(body.GenerationConfig) != want {
		t.Errorf("config %s", body.GenerationConfig)
	}
	if want := `"args":{"n":12345678901234567890}`; !strings.Contains(string(body.Contents), want) {
		t.Errorf("contents %s", body.Contents)
	}
}

func TestReasoning(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		model  string
		effort model.Effort
		max    int64
		want   string
	}{
		{"gemini-2.5-flash", "", 0, ``},
		{"gemini-2.5-flash", model.EffortNone, 0, `{"thinkingBudget":0}`},
		{"gemini-2.5-flash", model.EffortLow, 0, `{"includeThoughts":true,"thinkingBudget":1024}`},
		{"gemini-2.5-flash-lite", model.EffortLow, 600, `{"includeThoughts":true,"thinkingBudget":512}`},
		{"gemini-2.5-pro", model.EffortNone, 0, `{"thinkingBudget":128}`},
		{"models/gemini-2.5-pro", model.EffortHigh, 8000, `{"includeThoughts":true,"thinkingBudget":4000}`},
		{"gemini-2.5-pro", model.EffortHigh, 0, `{"includeThoughts":true,"thinkingBudget":24576}`},
		{"gemini-3-pro-preview", model.EffortNone, 0, `{"thinkingLevel":"LOW"}`},
		{"gemini-3-pro-preview", model.EffortMedium, 0, `{"includeThoughts":true,"thinkingLevel":"HIGH"}`},
		{"gemini-3.1-pro-preview", model.EffortMedium, 0, `{"includeThoughts":true,"thinkingLevel":"MEDIUM"}`},
		{"gemini-3-flash-preview", model.EffortNone, 0, `{"thinkingLevel":"MINIMAL"}`},
		{"gemini-3-flash-preview", model.EffortMedium, 0, `{"includeThoughts":true,"thinkingLevel":"MEDIUM"}`},
		{"gemini-flash-latest", model.EffortHigh, 0, `{"includeThoughts":true,"thinkingLevel":"HIGH"}`},
		{"gemini-2.0-flash", model.EffortHigh, 0, ``},
		{"gemma-3-27b-it", model.EffortHigh, 0, ``},
	} {
		var body struct {
			GenerationConfig struct{ ThinkingConfig json.RawMessage }
		}
		got := asked(t, model.Request{Model: test.model, Reasoning: test.effort, MaxOutputTokens: test.max, Messages: []state.Message{state.UserText("hi")}})
		if err := json.Unmarshal([]byte(got), &body); err != nil || string(body.GenerationConfig.ThinkingConfig) != test.want {
			t.Errorf("%s with %q and %d: %s, want %s", test.model, test.effort, test.max, body.GenerationConfig.ThinkingConfig, test.want)
		}
	}
}
