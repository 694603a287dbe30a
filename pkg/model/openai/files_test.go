package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sentFiles returns the messages of a request with files of a user and of the results of two tool calls.
func sentFiles(t *testing.T, name string, api model.API, base string, body *map[string]any, field string, said, first, second []state.Part) string {
	t.Helper()
	call := func(id string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: "f", Arguments: "{}"}
	}
	result := func(id, content string, files []state.Part) state.Message {
		return state.Message{Role: state.RoleTool, Parts: []state.Part{{Type: state.PartToolResult, CallID: id, Content: content, Files: files}}}
	}
	_, err := openai.New(openai.Config{}).Generate(t.Context(), model.Request{Model: name, API: api, BaseURL: base, Messages: []state.Message{
		{Role: state.RoleUser, Parts: append([]state.Part{text("Read")}, said...)},
		{Role: state.RoleAssistant, Parts: []state.Part{call("a"), call("b")}},
		result("a", "see", first), result("b", "", second),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal((*body)[field])
	if err != nil {
		t.Fatal(err)
	}
	return string(sent)
}

func sameJSON(t *testing.T, got, golden string) {
	t.Helper()
	var have, want any
	if err := json.Unmarshal([]byte(got), &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(golden), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func fileOf(name, mediaType, data string) state.Part {
	return state.Part{Type: state.PartFile, Name: name, MediaType: mediaType, Data: data}
}

// Chat completions have no files of texts, which become text, and none in results, which follow in a message.
func TestFilesOfChat(t *testing.T) {
	t.Parallel()
	pdf, notes := fileOf("", "application/pdf", "JVBE"), fileOf("n.md", "text/markdown", "aGk=")
	wav, mp3 := fileOf("s.wav", "audio/wav", "AAAA"), fileOf("s.mp3", "audio/mpeg", "BBBB")
	base, body, _ := record(t)
	got := sentFiles(t, "gpt-audio", model.APIChat, base, body, "messages", []state.Part{pdf, notes, mp3}, []state.Part{notes, pdf, wav}, []state.Part{notes})
	sameJSON(t, got, `[
		{"role": "user", "content": [{"type": "text", "text": "Read"}, {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
			{"type": "text", "text": "File n.md:\nhi"}, {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}}]},
		{"role": "assistant", "tool_calls": [{"type": "function", "id": "a", "function": {"name": "f", "arguments": "{}"}}, {"type": "function", "id": "b", "function": {"name": "f", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "see\nFile n.md:\nhi"},
		{"role": "tool", "tool_call_id": "b", "content": "\nFile n.md:\nhi"},
		{"role": "user", "content": [{"type": "text", "text": "Files in the result of tool call a:"}, {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
			{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}
	]`)
}

// The Responses API has files in messages and in results, with data or a URL.
func TestFilesOfResponses(t *testing.T) {
	t.Parallel()
	pdf, notes := fileOf("", "application/pdf", "JVBE"), fileOf("n.md", "text/markdown", "aGk=")
	far := state.Part{Type: state.PartFile, Name: "far.pdf", MediaType: "application/pdf", URL: "https://example.com/far.pdf"}
	base, body := exchange(t, completed)
	got := sentFiles(t, "gpt-5.4", model.APIResponses, base, body, "input", []state.Part{pdf, far}, []state.Part{notes, far}, []state.Part{pdf})
	sameJSON(t, got, `[
		{"role": "user", "content": [{"type": "input_text", "text": "Read"}, {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBE"}, {"type": "input_file", "file_url": "https://example.com/far.pdf"}]},
		{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
		{"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "see"}, {"type": "input_file", "filename": "n.md", "file_data": "data:text/markdown;base64,aGk="}, {"type": "input_file", "file_url": "https://example.com/far.pdf"}]},
		{"type": "function_call_output", "call_id": "b", "output": [{"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBE"}]}
	]`)
}
