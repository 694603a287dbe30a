package transcript_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// exports fails the test unless a history is exported as a document.
func exports(t *testing.T, format transcript.Format, history []state.Message, want string) {
	t.Helper()
	d, err := transcript.Export(format, history)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, want), decode(t, string(got))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", format, diff)
	}
}

// A history that ends with results has them, and their images.
func TestExportResultsAtTheEnd(t *testing.T) {
	t.Parallel()
	history := []state.Message{
		say(state.RoleAssistant, call("c1", `{}`)),
		state.ToolResult("c1", "1", false, state.Image{URL: "https://a.example/1.png"}, state.Image{MediaType: "image/png", Data: "AAAA"}),
	}
	exports(t, transcript.OpenAI, history, `{"format":"openai","messages":[
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"t","arguments":"{}"}}]},
		{"role":"tool","content":"1","tool_call_id":"c1"},
		{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example/1.png"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`)
	exports(t, transcript.Anthropic, history, `{"format":"anthropic","messages":[
		{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"t","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"1"},
			{"type":"image","source":{"type":"url","url":"https://a.example/1.png"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]}`)
}

// Anthropic's API takes no empty text, and none of white space. A message that has nothing else is left out. OpenAI's
// takes both.
func TestExportEmptyTexts(t *testing.T) {
	t.Parallel()
	blank := []state.Message{
		say(state.RoleSystem, text(" ")), say(state.RoleSystem, text("Be brief.")), say(state.RoleUser, text("\n")),
		say(state.RoleUser, text(" "), state.Part{Type: state.PartImage, URL: "https://a.example/1.png"}),
	}
	exports(t, transcript.OpenAI, blank, `{"format":"openai","messages":[
		{"role":"system","content":" "},{"role":"system","content":"Be brief."},{"role":"user","content":"\n"},
		{"role":"user","content":[{"type":"text","text":" "},{"type":"image_url","image_url":{"url":"https://a.example/1.png"}}]}]}`)
	exports(t, transcript.Anthropic, blank, `{"format":"anthropic","system":"Be brief.","messages":[
		{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.example/1.png"}}]}]}`)
	history := []state.Message{
		say(state.RoleSystem, text("")),
		say(state.RoleUser, text("")),
		say(state.RoleAssistant, text(""), call("c1", `{}`)),
		state.ToolResult("c1", "", false),
		say(state.RoleAssistant),
	}
	exports(t, transcript.OpenAI, history, `{"format":"openai","messages":[
		{"role":"system","content":""},{"role":"user","content":""},
		{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"t","arguments":"{}"}}]},
		{"role":"tool","content":"","tool_call_id":"c1"},{"role":"assistant","content":""}]}`)
	exports(t, transcript.Anthropic, history, `{"format":"anthropic","messages":[
		{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"t","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":""}]}]}`)
}

// Anthropic's API takes neither an error without a text nor images in an error, as the provider's requests have neither.
func TestExportErrors(t *testing.T) {
	t.Parallel()
	history := []state.Message{
		say(state.RoleAssistant, call("c1", `{}`), call("c2", `{}`)),
		state.ToolResult("c1", " ", true, state.Image{URL: "https://a.example/1.png"}),
		state.ToolResult("c2", "2", false),
		say(state.RoleUser, text("go on")),
	}
	const want = `{"format":"anthropic","messages":[
		{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"t","input":{}},{"type":"tool_use","id":"c2","name":"t","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"The tool failed without a message.","is_error":true},
			{"type":"tool_result","tool_use_id":"c2","content":"2"},{"type":"image","source":{"type":"url","url":"https://a.example/1.png"}}]}`
	exports(t, transcript.Anthropic, history, want+`,{"role":"user","content":"go on"}]}`)
	exports(t, transcript.Anthropic, history[:3], want+`]}`)
}

// Of thinking, only what Anthropic's models signed or redacted is exported, and only in their format. Both formats have a
// text for the use of a provider's tool.
func TestExportThinking(t *testing.T) {
	t.Parallel()
	thought := func(by, opaque string) state.Part {
		return state.Part{Type: state.PartThinking, Text: "hm", OpaqueBy: by, Opaque: json.RawMessage(opaque)}
	}
	history := []state.Message{say(state.RoleAssistant,
		thought("anthropic", `{"redacted":"r"}`), thought("anthropic", `{}`), thought("openai", `{"signature":"s"}`), thought("anthropic", ``),
		state.Part{Type: state.PartProviderTool, Name: "web_search", Content: "found"})}
	const use = `"[web_search, run by the model's provider. It returned:\nfound\n]\n"`
	exports(t, transcript.OpenAI, history, `{"format":"openai","messages":[{"role":"assistant","content":`+use+`}]}`)
	exports(t, transcript.Anthropic, history, `{"format":"anthropic","messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"r"},{"type":"text","text":`+use+`}]}]}`)
}
