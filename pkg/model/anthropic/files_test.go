package anthropic_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Documents keep their names and addresses. The result of an error may have only text, so its images and files follow
// all results.
func TestDocuments(t *testing.T) {
	t.Parallel()
	base, body, _ := record(t)
	pdf := state.Part{Type: state.PartFile, Name: "a.pdf", MediaType: "application/pdf", Data: "JVBERi0="}
	failed := state.ToolResult("a", "no", true, state.Image{MediaType: "image/png", Data: "BBBB"})
	failed.Parts[0].Files = []state.Part{pdf}
	worked := state.ToolResult("b", "yes", false)
	worked.Parts[0].Files = []state.Part{pdf}
	r := model.Request{Model: "m", BaseURL: base + "/v1", Messages: []state.Message{
		{Role: state.RoleUser, Parts: []state.Part{
			{Type: state.PartFile, MediaType: "application/pdf", URL: "https://example.com/b.pdf"}, {Type: state.PartFile, Name: "n.txt", MediaType: "text/plain", Data: "aGk="},
		}},
		{Role: state.RoleAssistant, Parts: []state.Part{call("a", "f", "{}"), call("b", "f", "{}")}}, failed, worked,
	}}
	if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	const document = `{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}`
	var want any
	if err := json.Unmarshal([]byte(`[
		{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://example.com/b.pdf"}},
			{"type":"document","title":"n.txt","source":{"type":"text","media_type":"text/plain","data":"hi"}}]},
		{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"text","text":"no"}]},
			{"type":"tool_result","tool_use_id":"b","is_error":false,"content":[{"type":"text","text":"yes"},`+document+`]},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"BBBB"}},`+document+`]}]`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, uncached((*body)["messages"])); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// uncached removes the marks of the cache.
func uncached(v any) any {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			uncached(e)
		}
	case map[string]any:
		delete(v, "cache_control")
		for _, e := range v {
			uncached(e)
		}
	}
	return v
}

// The API gets a schema to enforce only if it can: each object must be closed, also inside a list.
func TestEnforcedSchemas(t *testing.T) {
	t.Parallel()
	const closed, open = `{"type":"object","properties":{},"additionalProperties":false}`, `{"type":"object","properties":{}}`
	in := func(key, inner string) string {
		return `{"type":"object","properties":{"x":{` + key + inner + `}},"additionalProperties":false}`
	}
	for schema, want := range map[string]bool{
		closed: true, open: false,
		in(`"type":"array","items":`, closed): true, in(`"type":"array","items":`, open): false,
		in(`"anyOf":[`, closed+`]`): true, in(`"anyOf":[`, open+`]`): false,
		in(`"type":"string","pattern":`, `"a"`): false, in(`"type":`, `"string"`): true,
	} {
		base, body, _ := record(t)
		r := model.Request{Model: "claude-sonnet-4-5", BaseURL: base + "/v1", Messages: []state.Message{state.UserText("hi")}, OutputSchema: json.RawMessage(schema)}
		if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		config, _ := (*body)["output_config"].(map[string]any)
		if got := config["format"] != nil; got != want {
			t.Errorf("%s: enforced %v, want %v", schema, got, want)
		}
	}
}

// The instructions are split for the cache only if neither part is blank, which the API refuses.
func TestBlankPartsAreNotSplit(t *testing.T) {
	t.Parallel()
	for shared, want := range map[int]int{0: 1, 1: 1, 6: 2, 9: 1, 10: 1, 11: 1} {
		base, body, _ := record(t)
		r := model.Request{Model: "m", BaseURL: base + "/v1", Shared: shared, Messages: []state.Message{
			{Role: state.RoleSystem, Parts: []state.Part{text(" Hello Ada")}}, state.UserText("hi"),
		}}
		if shared >= 9 {
			r.Messages[0].Parts[0].Text = " HelloAda "
		}
		if _, err := anthropic.New(anthropic.Config{}).Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if list, _ := (*body)["system"].([]any); len(list) != want {
			t.Errorf("%d bytes shared: system %v, want %d blocks", shared, list, want)
		}
	}
}

// What arrives for a block after its end is dropped: it does not change a call that may run.
func TestDeltaBehindTheEndOfABlock(t *testing.T) {
	t.Parallel()
	resp, err := generate(t, serve(t, start, begin(0, `{"type":"tool_use","id":"a","name":"f","input":{}}`), delta(0, `{"type":"input_json_delta","partial_json":"{}"}`), end(0),
		delta(0, `{"type":"input_json_delta","partial_json":"{"}`), begin(1, `{"type":"text","text":"b"}`), end(1), delta(1, `{"type":"text_delta","text":"c"}`), done("tool_use"), stop))
	if diff := cmp.Diff([]state.Part{call("a", "f", "{}"), text("b")}, resp.Parts); err != nil || diff != "" {
		t.Errorf("%v, parts (-want +got):\n%s", err, diff)
	}
}
