package gemini_test

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Texts are sent as text/plain. In a result only models from Gemini 3 on take files, and none takes audio there: audio
// follows the result, and for earlier models the text is part of it.
func TestFilesOfMessages(t *testing.T) {
	t.Parallel()
	notes := state.Part{Type: state.PartFile, Name: "n.md", MediaType: "text/markdown", Data: "aGk="}
	sound := state.Part{Type: state.PartFile, Name: "s.wav", MediaType: "audio/wav", Data: "AAAA"}
	answer := result("c1", "see")
	answer.Files = []state.Part{notes, sound}
	for name, contents := range map[string]string{
		"gemini-3-pro-preview": `[
			{"role":"user","parts":[{"text":"Read"},{"inlineData":{"data":"aGk=","mimeType":"text/plain"}}]},
			{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f"},"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"see"},"parts":[{"inlineData":{"data":"aGk=","mimeType":"text/plain"}}]}},
				{"inlineData":{"data":"AAAA","mimeType":"audio/wav"}}]}]`,
		"gemini-2.5-flash": `[
			{"role":"user","parts":[{"text":"Read"},{"inlineData":{"data":"aGk=","mimeType":"text/plain"}}]},
			{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"see\nFile n.md:\nhi"}}},{"inlineData":{"data":"AAAA","mimeType":"audio/wav"}}]}]`,
	} {
		var body struct{ Contents json.RawMessage }
		r := model.Request{Model: name, Messages: []state.Message{say(state.RoleUser, text("Read"), notes), say(state.RoleAssistant, call("c1", "f", "{}")), say(state.RoleTool, answer)}}
		if err := json.Unmarshal([]byte(asked(t, r)), &body); err != nil {
			t.Fatal(err)
		}
		equal(t, string(body.Contents), contents)
	}
}

// A file of an address has the media type that its message states. Only without one does the extension decide.
func TestFilesOfAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mediaType, url, want string }{
		"no extension":        {"image/webp", "https://x.example/files/7", `"mimeType":"image/webp"`},
		"another extension":   {"image/webp", "https://x.example/a.png", `"mimeType":"image/webp"`},
		"extension only":      {"", "https://x.example/a.png?size=2.html#b.css", `"mimeType":"image/png"`},
		"extension of a text": {"", "https://x.example/a.html", `"mimeType":"text/html"`},
		"neither of them":     {"", "https://x.example/files/7", ""},
		"not an address":      {"", "%zz/a.png", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body struct{ Contents json.RawMessage }
			r := model.Request{Model: "gemini-2.5-flash", Messages: []state.Message{say(state.RoleUser, state.Part{Type: state.PartImage, MediaType: c.mediaType, URL: c.url})}}
			if err := json.Unmarshal([]byte(asked(t, r)), &body); err != nil {
				t.Fatal(err)
			}
			want := `{"fileUri":"` + c.url + `"`
			if c.want != "" {
				want += "," + c.want
			}
			equal(t, string(body.Contents), `[{"role":"user","parts":[{"fileData":`+want+`}}]}]`)
		})
	}
}

// A total that a later event omits stays, and the usage of a response that broke off is an estimate.
func TestUsageOfPieces(t *testing.T) {
	t.Parallel()
	first := `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"thoughtsTokenCount":3,"cachedContentTokenCount":4}}`
	last := `{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5}}`
	resp, err := generate(t, serve(t, 200, stream(first, last)))
	if u := resp.Usage; err != nil || u.InputTokens != 9 || u.OutputTokens != 8 || u.CacheReadTokens != 4 || u.Estimated {
		t.Errorf("usage %+v, %v", u, err)
	}
	resp, err = generate(t, serve(t, 200, stream(first)))
	if u := resp.Usage; err == nil || u.InputTokens != 9 || u.OutputTokens != 5 || !u.Estimated {
		t.Errorf("usage of a response that broke off %+v, %v", u, err)
	}
}
