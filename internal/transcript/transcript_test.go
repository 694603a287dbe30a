package transcript_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func say(role state.Role, parts ...state.Part) state.Message {
	return state.Message{Role: role, Parts: parts}
}

func text(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }

func call(id, args string) state.Part {
	return state.Part{Type: state.PartToolCall, ID: id, Name: "t", Arguments: args}
}

// An exported transcript is exactly what the provider's API accepts.
func TestExport(t *testing.T) {
	t.Parallel()
	dead := say(state.RoleAssistant, text("half"))
	dead.Tombstoned = true
	history := []state.Message{
		say(state.RoleSystem, text("Be <brief>.")),
		say(state.RoleUser, text("look"), state.Part{Type: state.PartImage, MediaType: "image/png", Data: "iVBORw0="}),
		dead,
		say(state.RoleAssistant,
			state.Part{Type: state.PartThinking, Text: "hm", Opaque: json.RawMessage(`{"signature":"sig"}`), OpaqueBy: "anthropic"},
			text("I look."), call("c1", `{"a":1}`), call("c2", `{"a":`)),
		state.ToolResult("c1", "42", false),
		state.ToolResult("c2", "bad arguments", true),
		say(state.RoleUser, text("go on")),
		say(state.RoleAssistant, text("done")),
	}
	for format, want := range map[transcript.Format]string{
		transcript.OpenAI: `{"format":"openai","messages":[
			{"role":"system","content":"Be <brief>."},
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0="}}]},
			{"role":"assistant","content":"I look.","tool_calls":[
				{"id":"c1","type":"function","function":{"name":"t","arguments":"{\"a\":1}"}},
				{"id":"c2","type":"function","function":{"name":"t","arguments":"{\"a\":"}}]},
			{"role":"tool","content":"42","tool_call_id":"c1"},
			{"role":"tool","content":"bad arguments","tool_call_id":"c2"},
			{"role":"user","content":"go on"},
			{"role":"assistant","content":"done"}]}`,
		transcript.Anthropic: `{"format":"anthropic","system":"Be <brief>.","messages":[
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0="}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"I look."},
				{"type":"tool_use","id":"c1","name":"t","input":{"a":1}},{"type":"tool_use","id":"c2","name":"t","input":{"invalid_arguments":"{\"a\":"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"42"},{"type":"tool_result","tool_use_id":"c2","content":"bad arguments","is_error":true}]},
			{"role":"user","content":"go on"},
			{"role":"assistant","content":"done"}]}`,
	} {
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
}

// Images of results stay in them if the format allows it, and otherwise follow all results.
func TestExportImages(t *testing.T) {
	t.Parallel()
	call := func(id string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: "t", Arguments: `{}`}
	}
	history := []state.Message{
		say(state.RoleUser, text("look")),
		say(state.RoleAssistant, call("c1"), call("c2")),
		state.ToolResult("c1", "", false, state.Image{MediaType: "image/png", Data: "AAAA"}), state.ToolResult("c2", "2", false),
		say(state.RoleAssistant, text("done")),
	}
	for format, want := range map[transcript.Format]string{
		transcript.OpenAI: `{"format":"openai","messages":[{"role":"user","content":"look"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"t","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"t","arguments":"{}"}}]},
			{"role":"tool","content":"","tool_call_id":"c1"},{"role":"tool","content":"2","tool_call_id":"c2"},
			{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
			{"role":"assistant","content":"done"}]}`,
		transcript.Anthropic: `{"format":"anthropic","messages":[{"role":"user","content":"look"},
			{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"t","input":{}},{"type":"tool_use","id":"c2","name":"t","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
				{"type":"tool_result","tool_use_id":"c2","content":"2"}]},
			{"role":"assistant","content":"done"}]}`,
	} {
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
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// Import accepts real-world variants: texts in parts, refusals, developer messages, results as blocks.
func TestImport(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		doc  string
		want []state.Message
	}{
		"openai": {`{"format":"openai","messages":[{"role":"developer","content":"x"},{"role":"user","name":"bob","content":[{"type":"text","text":"hi"}]},
			{"role":"assistant","content":null,"refusal":"no","annotations":[]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			[]state.Message{say(state.RoleSystem, text("x")), say(state.RoleUser, text("hi")), say(state.RoleAssistant, text("no")), state.ToolResult("c", "ab", false)}},
		"anthropic": {`{"format":"anthropic","system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],"messages":[
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"}],"is_error":true},{"type":"text","text":"and?"}]},
			{"role":"assistant","content":[{"type":"redacted_thinking","data":"r"}]}]}`,
			[]state.Message{say(state.RoleSystem, text("x")), state.ToolResult("c", "a", true), say(state.RoleUser, text("and?")),
				say(state.RoleAssistant, state.Part{Type: state.PartThinking, Opaque: json.RawMessage(`{"redacted":"r"}`), OpaqueBy: "anthropic"})}},
		"anthropic images": {`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]}]}`,
			[]state.Message{state.ToolResult("c", "a", false, state.Image{MediaType: "image/png", Data: "AAAA"}, state.Image{URL: "https://example.com/a.png"})}},
		"anthropic results without content": {`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true},
			{"type":"tool_result","tool_use_id":"b","content":null,"is_error":true},{"type":"tool_result","tool_use_id":"c","content":[],"is_error":true},
			{"type":"tool_result","tool_use_id":"d","content":"","is_error":true},{"type":"tool_result","tool_use_id":"e"}]}]}`,
			[]state.Message{state.ToolResult("a", "", true), state.ToolResult("b", "", true), state.ToolResult("c", "", true), state.ToolResult("d", "", true), state.ToolResult("e", "", false)}},
	} {
		var d transcript.Document
		if err := json.Unmarshal([]byte(tt.doc), &d); err != nil {
			t.Fatal(err)
		}
		got, err := transcript.Import(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"format":"gemini","messages":[]}`:                                                                                                               `format is "gemini": use openai or anthropic`,
		`{"format":"openai"}`:                                                                                                                             "messages is missing",
		`{"format":"openai","messages":{}}`:                                                                                                               "messages is not a list",
		`{"format":"openai","system":"x","messages":[]}`:                                                                                                  "system is not a field of the format openai",
		`{"format":"openai","messages":[{"role":"robot"}]}`:                                                                                               `messages[0].role: it is "robot": use system`,
		`{"format":"openai","messages":[{"role":"user","content":""},{"role":"user"}]}`:                                                                   "messages[1].content: it is empty: give a string",
		`{"format":"openai","messages":[{"role":"assistant"}]}`:                                                                                           "messages[0].content: it is empty, and there are no tool_calls",
		`{"format":"anthropic","system":7,"messages":[]}`:                                                                                                 "system: it is empty or of the wrong type",
		`{"format":"openai","messages":[{"role":"tool","content":"x"}]}`:                                                                                  "messages[0].tool_call_id: it is missing",
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                                                             `messages[0].content[0].type: it is "input_audio": use text`,
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"text"}]}]}`:                                                                    `messages[0].content[0].text: it is missing`,
		`{"format":"openai","messages":[{"role":"user","content":7}]}`:                                                                                    "messages[0].content: it is of the wrong type",
		`{"format":"openai","messages":[{"role":"assistant","tool_calls":[{"id":"c"}]}]}`:                                                                 "messages[0].tool_calls[0]: the call has no id",
		`{"format":"openai","messages":[{"role":"user","content":"x","tool_calls":[{}]}]}`:                                                                "only a message of role assistant can have tool_calls",
		`{"format":"openai","messages":[7]}`:                                                                                                              "messages[0] is not a message of the OpenAI Chat Completions API",
		`{"format":"anthropic","messages":[{"role":"system","content":"x"}]}`:                                                                             `messages[0].role: it is "system": use user or assistant`,
		`{"format":"anthropic","messages":[{"role":"user","content":[]}]}`:                                                                                "messages[0].content: it is",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_use"}]}]}`:                                                             `messages[0].content[0].type: a block of type "tool_use"`,
		`{"format":"anthropic","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":[]}]}]}`:                         "messages[0].content[0].input: it is not a JSON object: send one",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`:                                                          "messages[0].content[0].tool_use_id: it is missing",
		`{"format":"anthropic","messages":[{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"c"}]}]}`:                                   "only allowed in a message of role user",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image"}]}]}]}`:           "content[0].content[0]: a tool_result cannot have a block of type",
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"input_audio","text":"x"}]}]}`:                                                  `messages[0].content[0].type: it is "input_audio": use text`,
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"input_audio","refusal":"x"}]}]}`:                                               `messages[0].content[0].type: it is "input_audio": use text`,
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"video_url","image_url":{"url":"https://example.com/x"}}]}]}`:                   `messages[0].content[0].type: it is "video_url": use text`,
		`{"format":"openai","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`:                                                               `messages[0].content[0].image_url: it is missing`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://example.com/x.pdf"}}]}]}`:   `messages[0].content[0].type: a block of type "document"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"document","text":"x"}]}]}`:                                                  `messages[0].content[0].type: a block of type "document"`,
		`{"format":"anthropic","messages":[{"role":"assistant","content":[{"type":"image","source":{"type":"url","url":"https://example.com/x.png"}}]}]}`: `messages[0].content[0].type: a block of type "image"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"thinking","thinking":"x"}]}]}`:                                              `messages[0].content[0].type: a block of type "thinking"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"redacted_thinking","data":"x"}]}]}`:                                         `messages[0].content[0].type: a block of type "redacted_thinking"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"document","source":{"type":"url","url":"https://example.com/x.pdf"}}]}]}]}`: `content[0].content[0]: a tool_result cannot have a block of type "document"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"search_result","text":"x"}]}]}]}`:                                           `content[0].content[0]: a tool_result cannot have a block of type "search_result"`,
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","media_type":"image/png","data":"AAAA"}}]}]}`:                                                   "content[0].source: the image has neither a url nor base64",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}`:                                                                          "content[0].source: the image has neither a url nor base64",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]}]}`:                                                               "content[0].source: the image has neither a url nor base64",
		`{"format":"anthropic","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url"}}]}]}`:                                                                                           "content[0].source.url: ",
		`{"format":"anthropic","system":[{"type":"image"}],"messages":[]}`:                                                                                                                                   "system[0] is not a text",
	} {
		var d transcript.Document
		if err := json.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if _, err := transcript.Import(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  error = %v, want one with %q", doc, err, want)
		}
	}
}

// Everything that both formats can express survives export and import.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringMatching(`[a-zü<"\\][a-zü<"\\ ]{0,8}`)
		history := []state.Message{say(state.RoleSystem, text(word.Draw(rt, "system")))}
		for i := range rapid.IntRange(1, 6).Draw(rt, "turns") {
			said := []state.Part{text(word.Draw(rt, "said"))}
			if rapid.Bool().Draw(rt, "image") {
				said = append(said, state.Part{Type: state.PartImage, URL: "https://example.com/x.png"})
			}
			history = append(history, say(state.RoleUser, said...))
			answer := []state.Part{text(word.Draw(rt, "answer"))}
			var results []state.Message
			for j := range rapid.IntRange(0, 3).Draw(rt, "calls") {
				id := string(rune('a'+i)) + string(rune('a'+j))
				answer = append(answer, call(id, `{"n":12345678901234567890}`))
				results = append(results, state.ToolResult(id, word.Draw(rt, "result"), false))
			}
			history = append(append(history, say(state.RoleAssistant, answer...)), results...)
		}
		for _, f := range transcript.Formats() {
			d, err := transcript.Export(f, history)
			if err != nil {
				rt.Fatal(err)
			}
			b, err := json.Marshal(d)
			if err != nil {
				rt.Fatal(err)
			}
			var back transcript.Document
			if err := json.Unmarshal(b, &back); err != nil {
				rt.Fatal(err)
			}
			got, err := transcript.Import(back)
			if err != nil {
				rt.Fatalf("%s: %v in %s", f, err, b)
			}
			if diff := cmp.Diff(history, got); diff != "" {
				rt.Fatalf("%s (-exported +imported):\n%s", f, diff)
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add("openai", `[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]}]`, "")
	f.Add("anthropic", `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"}]}]}]`, `"x"`)
	f.Fuzz(func(t *testing.T, format, messages, system string) {
		d := transcript.Document{Format: transcript.Format(format), Messages: json.RawMessage(messages), System: json.RawMessage(system)}
		history, err := transcript.Import(d)
		if err != nil {
			return
		}
		if _, err := transcript.Export(d.Format, history); err != nil {
			t.Errorf("an imported transcript cannot be exported: %v", err)
		}
	})
}

// A file whose content is elsewhere is exported as a line of text.
func TestExportFiles(t *testing.T) {
	t.Parallel()
	result := state.ToolResult("c1", "found", false)
	result.Parts[0].Files = []state.Part{{Type: state.PartFile, FileID: "file_2", Name: "b.pdf", MediaType: "application/pdf", Bytes: 7}}
	history := []state.Message{
		say(state.RoleUser, text("look"), state.Part{Type: state.PartFile, FileID: "file_1", Name: "a.pdf", MediaType: "application/pdf", Bytes: 7}),
		say(state.RoleAssistant, state.Part{Type: state.PartToolCall, ID: "c1", Name: "find", Arguments: "{}"}), result,
	}
	for _, format := range []transcript.Format{transcript.OpenAI, transcript.Anthropic} {
		d, err := transcript.Export(format, history)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got), `"[file a.pdf application/pdf file_1]"`) || !strings.Contains(string(got), `"found\n[file b.pdf application/pdf file_2]"`) {
			t.Errorf("%s: %s", format, got)
		}
	}
}
