package standard_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func fileOf(name, mediaType, content string) state.Part {
	return state.Part{Type: state.PartFile, Name: name, MediaType: mediaType, Data: base64.StdEncoding.EncodeToString([]byte(content)), Bytes: int64(len(content))}
}

// Each provider sends its supported files in the form of its API reference.
func TestFilesOnTheWire(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	pdf, text, png := fileOf("a.pdf", "application/pdf", "%PDF"), fileOf("", "text/csv", "a;b"), fileOf("p", "image/png", "png")
	mp3, link := fileOf("a.mp3", "audio/mp3", "mp3"), state.Part{Type: state.PartFile, MediaType: "application/pdf", URL: "https://example.com/a.pdf"}
	for name, tt := range map[string]struct {
		provider, model string
		api             model.API
		parts           []state.Part
		field, want     string
	}{
		"anthropic": {"anthropic", "claude-haiku-4-5", "", []state.Part{pdf, text, png, link}, "messages", `[{"role":"user","content":[
			{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}},
			{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a;b"}},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}},
			{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}]}]`},
		"responses": {"openai", "gpt-5.2", model.APIResponses, []state.Part{pdf, text, png, link}, "input", `[{"role":"user","content":[
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="},
			{"type":"input_file","filename":"file.txt","file_data":"data:text/csv;base64,YTti"},
			{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,cG5n"},
			{"type":"input_file","file_url":"https://example.com/a.pdf"}]}]`},
		"chat": {"openai", "gpt-audio", model.APIChat, []state.Part{pdf, text, png, mp3}, "messages", `[{"role":"user","content":[
			{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},
			{"type":"text","text":"File file.txt:\na;b"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},
			{"type":"input_audio","input_audio":{"data":"bXAz","format":"mp3"}}]}]`},
		"gemini": {"gemini", "gemini-2.5-flash", "", []state.Part{pdf, text, png, mp3, link}, "contents", `[{"role":"user","parts":[
			{"inlineData":{"data":"JVBERg==","mimeType":"application/pdf"}},
			{"inlineData":{"data":"YTti","mimeType":"text/plain"}},
			{"inlineData":{"data":"cG5n","mimeType":"image/png"}},
			{"inlineData":{"data":"bXAz","mimeType":"audio/mpeg"}},
			{"fileData":{"fileUri":"https://example.com/a.pdf","mimeType":"application/pdf"}}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := asked(t, providers[tt.provider], model.Request{
				Model: tt.model, API: tt.api, Messages: []state.Message{{Role: state.RoleUser, Parts: tt.parts}},
			})
			if got, want := sorted(t, string(body[tt.field])), sorted(t, tt.want); got != want {
				t.Errorf("sent\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Each provider sends the files of a tool's result where its API accepts them. A file that cannot be sent does
// not fail the call, because a tool chose it.
func TestFilesInResultsOnTheWire(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	pdf, text, png, zip := fileOf("a.pdf", "application/pdf", "%PDF"), fileOf("b", "text/csv", "a;b"), fileOf("p", "image/png", "png"), fileOf("c.zip", "application/zip", "zip")
	old := state.Part{Type: state.PartFile, FileID: "file_1", MediaType: "application/pdf", Bytes: 9} // not loaded
	mp3 := fileOf("a.mp3", "audio/mpeg", "mp3")
	for name, tt := range map[string]struct {
		provider, model string
		api             model.API
		files           []state.Part
		isError         bool
		field, want     string
	}{
		"anthropic": {"anthropic", "claude-haiku-4-5", "", []state.Part{pdf, text, png, zip, old}, false, "messages", `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":false,"content":[
			{"type":"text","text":"found\n[file c.zip application/zip left out: anthropic takes no application/zip: its models take files of the kinds PDF, text, image, so convert the file]\n[file application/pdf file_1 left out: the files of the history are larger than anthropic takes in a request]"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}},
			{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}},
			{"type":"document","title":"b","source":{"type":"text","media_type":"text/plain","data":"a;b"}}]}]}]`},
		"anthropic, an error": {"anthropic", "claude-haiku-4-5", "", []state.Part{pdf}, true, "messages", `[{"role":"user","content":[
			{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[{"type":"text","text":"found"}]},
			{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}}]}]`},
		"responses": {"openai", "gpt-5.2", model.APIResponses, []state.Part{pdf, text, png}, false, "input", `[{"type":"function_call_output","call_id":"c1","output":[
			{"type":"input_text","text":"found"},
			{"type":"input_image","image_url":"data:image/png;base64,cG5n"},
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="},
			{"type":"input_file","filename":"b","file_data":"data:text/csv;base64,YTti"}]}]`},
		"chat": {"openai", "gpt-audio", model.APIChat, []state.Part{pdf, text, mp3}, false, "messages", `[
			{"role":"tool","tool_call_id":"c1","content":"found\nFile b:\na;b"},
			{"role":"user","content":[{"type":"text","text":"Files in the result of tool call c1:"},
			{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},
			{"type":"input_audio","input_audio":{"data":"bXAz","format":"mp3"}}]}]`},
		"gemini 2.5": {"gemini", "gemini-2.5-flash", "", []state.Part{pdf, text}, false, "contents", `[{"role":"user","parts":[
			{"functionResponse":{"id":"c1","name":"unknown","response":{"output":"found\nFile b:\na;b"}}},
			{"inlineData":{"data":"JVBERg==","mimeType":"application/pdf"}}]}]`},
		"gemini 3": {"gemini", "gemini-3-pro-preview", "", []state.Part{pdf, text, mp3}, false, "contents", `[{"role":"user","parts":[
			{"functionResponse":{"id":"c1","name":"unknown","response":{"output":"found"},"parts":[
			{"inlineData":{"data":"JVBERg==","mimeType":"application/pdf"}},{"inlineData":{"data":"YTti","mimeType":"text/plain"}}]}},
			{"inlineData":{"data":"bXAz","mimeType":"audio/mpeg"}}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := state.Part{Type: state.PartToolResult, CallID: "c1", Content: "found", IsError: tt.isError, Files: tt.files}
			body := asked(t, providers[tt.provider], model.Request{
				Model: tt.model, API: tt.api, Messages: []state.Message{{Role: state.RoleTool, Parts: []state.Part{result}}},
			})
			if got, want := sorted(t, string(body[tt.field])), sorted(t, tt.want); got != want {
				t.Errorf("sent\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A file that a model is known not to accept is refused with the remedy: at the submission or, if it arrives
// another way, before the call.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	providers, err := standard.Providers("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	link := state.Part{Type: state.PartFile, MediaType: "text/plain", URL: "https://example.com/a.txt"}
	for _, tt := range []struct {
		c    model.Choice
		p    state.Part
		want string // of the reason; empty: accepted
	}{
		{model.Choice{Provider: "anthropic", Model: "claude-haiku-4-5"}, fileOf("a", "audio/wav", "x"), "anthropic takes no audio/wav: its models take files of the kinds PDF, text, image"},
		{model.Choice{Provider: "anthropic", Model: "claude-3-opus-20240229"}, fileOf("a", "application/pdf", "x"), "claude-3-opus-20240229 takes no application/pdf: this model takes none: use a later one"},
		{model.Choice{Provider: "anthropic", Model: "claude-3-5-sonnet-20241022"}, fileOf("a", "application/pdf", "x"), ""},
		{model.Choice{Provider: "anthropic", Model: "claude-haiku-4-5"}, link, "anthropic takes no url of a file of type text/plain: upload the file, or send its data"},
		{model.Choice{Provider: "anthropic", Model: "claude-haiku-4-5"}, fileOf("a", "image/svg+xml", "x"), "anthropic takes no image/svg+xml: its models take image/png"},
		{model.Choice{Provider: "openai", Model: "gpt-3.5-turbo"}, fileOf("a", "application/pdf", "x"), "use gpt-4o"},
		{model.Choice{Provider: "openai", Model: "gpt-5.2"}, fileOf("a", "audio/wav", "x"), "the API responses of openai takes no audio/wav: write api: chat"},
		{model.Choice{Provider: "openai", Model: "gpt-4o", API: model.APIChat}, fileOf("a", "audio/wav", "x"), "use one with audio in its name"},
		{model.Choice{Provider: "openai", Model: "qwen3-omni", BaseURL: "http://10.0.0.7/v1"}, fileOf("a", "audio/wav", "x"), ""},
		{model.Choice{Provider: "gemini", Model: "gemini-2.5-flash"}, fileOf("a", "application/zip", "x"), "gemini takes no application/zip"},
		{model.Choice{Provider: "scripted"}, fileOf("a", "application/zip", "x"), ""},
	} {
		spec := model.BuiltinSpecs()[tt.c.Provider]
		got := spec.CheckFiles(tt.c, state.Part{Type: state.PartText, Text: "x"}, tt.p)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.c.Model, tt.p.MediaType, got, tt.want)
		}
		if tt.want == "" || tt.c.BaseURL != "" {
			continue
		}
		r := model.Request{Model: tt.c.Model, API: tt.c.API, Messages: []state.Message{{Role: state.RoleUser, Parts: []state.Part{tt.p}}}, APIKey: "k"}
		if r.API == "" && tt.c.Provider == "openai" {
			r.API = model.APIResponses
		}
		_, err := providers[tt.c.Provider].Generate(t.Context(), r, nil)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.InvalidRequest || !strings.Contains(e.Message, tt.want) {
			t.Errorf("the call with %s: %v", tt.p.MediaType, err)
		}
	}
	two := fileOf("a", "application/pdf", "x")
	two.Bytes = 12_000_000
	if got := model.BuiltinSpecs()["anthropic"].CheckFiles(model.Choice{Provider: "anthropic", Model: "claude-haiku-4-5"}, two, two); !strings.Contains(got, "24000000 bytes in total, anthropic accepts at most 23000000") {
		t.Errorf("too large together: %q", got)
	}
	binary := model.Request{Model: "m", Messages: []state.Message{{Role: state.RoleUser, Parts: []state.Part{fileOf("a.txt", "text/plain", "\xff")}}}, APIKey: "k"}
	if _, err := providers["anthropic"].Generate(t.Context(), binary, nil); err == nil || !strings.Contains(err.Error(), `"a.txt" of type text/plain cannot be sent: the file's data is not UTF-8`) {
		t.Errorf("invalid text: %v", err)
	}
	unloaded := state.Part{Type: state.PartFile, FileID: "file_x", MediaType: "application/pdf"}
	if _, err := model.SendFiles(model.Choice{Provider: "anthropic", Model: "m"}, []state.Message{{Parts: []state.Part{unloaded}}}); err == nil {
		t.Error("a file without content was sent")
	}
}

// The media types of histories are those that providers know.
func TestMediaType(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"Audio/X-Wav": "audio/wav", "text/plain; charset=utf-8": "text/plain", "image/jpg": "image/jpeg", "": "", "application/pdf": "application/pdf"} {
		if got := model.MediaType(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}
