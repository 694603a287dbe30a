package model

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A call of the final answer's tool appears as text to everything but the provider.
func TestAnswerByTool(t *testing.T) {
	t.Parallel()
	const object, list = `{"type":"object"}`, `{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"number"}}}`
	text := func(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }
	call := func(name, args string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: "c", Name: name, Arguments: args}
	}
	thought := state.Part{Type: state.PartThinking, Text: "hm"}
	for _, tt := range []struct {
		name      string
		schema    string
		choice    ToolChoice
		force     bool
		parts     []state.Part
		asked     ToolChoice
		arguments string
		want      []state.Part
		stop      Stop
	}{
		{"answer", object, ToolChoice{}, false, []state.Part{thought, text("So:"), call(FinalAnswer, `{"a":1}`)}, ToolChoice{}, object, []state.Part{thought, text(`{"a":1}`)}, StopEnd},
		{"forced", object, ToolChoice{Mode: ToolsAuto}, true, []state.Part{call("f", `{}`)}, ToolChoice{Mode: ToolsAny}, object, []state.Part{call("f", `{}`)}, StopToolCalls},
		{"last call", object, ToolChoice{Mode: ToolsNone}, true, []state.Part{call(FinalAnswer, `{}`)}, ToolChoice{Tool: FinalAnswer}, object, []state.Part{text(`{}`)}, StopEnd},
		{"beside another", object, ToolChoice{}, false, []state.Part{text("x"), call("f", `{}`), call(FinalAnswer, `{}`)}, ToolChoice{}, object, []state.Part{text("x"), call("f", `{}`)}, StopToolCalls},
		{"in words", object, ToolChoice{}, false, []state.Part{text(`{}`)}, ToolChoice{}, object, []state.Part{text(`{}`)}, StopEnd},
		{"list", list, ToolChoice{}, false, []state.Part{call(FinalAnswer, `{"answer": [1]}`)}, ToolChoice{}, `{"$defs":{"n":{"type":"number"}},"additionalProperties":false,` +
			`"properties":{"answer":{"items":{"$ref":"#/$defs/n"},"type":"array"}},"required":["answer"],"type":"object"}`, []state.Part{text(`[1]`)}, StopEnd},
		{"broken list", list, ToolChoice{}, false, []state.Part{call(FinalAnswer, `[1`)}, ToolChoice{}, "", []state.Part{text(`[1`)}, StopEnd},
		{"anything", `true`, ToolChoice{}, false, []state.Part{call(FinalAnswer, `{"answer":null}`)}, ToolChoice{}, `{"additionalProperties":false,"properties":{"answer":true},"required":["answer"],"type":"object"}`,
			[]state.Part{text(`null`)}, StopEnd},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Request{OutputSchema: json.RawMessage(tt.schema), Tools: []ToolSpec{{Name: "f"}}, Settings: Settings{ToolChoice: tt.choice}}
			if !r.BesideTools() {
				t.Fatal("the request has no schema next to its tools")
			}
			resp, err := AnswerByTool(t.Context(), r, nil, tt.force, func(_ context.Context, r Request, _ func(Delta)) (Response, error) {
				if n := len(r.Tools); n != 2 || r.Tools[1].Name != FinalAnswer || r.OutputSchema != nil || r.ToolChoice != tt.asked {
					t.Errorf("called with %+v", r)
				}
				if got := string(r.Tools[1].Schema); tt.arguments != "" && got != tt.arguments {
					t.Errorf("arguments %s, want %s", got, tt.arguments)
				}
				stop := StopEnd
				if len((state.Message{Parts: tt.parts}).Calls()) > 0 {
					stop = StopToolCalls
				}
				return Response{Parts: tt.parts, Stop: stop}, nil
			})
			if diff := cmp.Diff(tt.want, resp.Parts); err != nil || diff != "" || resp.Stop != tt.stop {
				t.Errorf("stop %s, %v, parts (-want +got):\n%s", resp.Stop, err, diff)
			}
		})
	}
	if r := (Request{OutputSchema: json.RawMessage(object), Tools: []ToolSpec{{Name: "f"}}, Settings: Settings{ToolChoice: ToolChoice{Mode: ToolsAny}}}); r.BesideTools() {
		t.Error("a model that must call a tool may answer")
	}
}

// Deltas of the answer stream as text, and a truncated answer leaves no call behind.
func TestAnswerByToolStreams(t *testing.T) {
	t.Parallel()
	r := Request{OutputSchema: json.RawMessage(`{"type":"object"}`), Tools: []ToolSpec{{Name: "f"}}}
	var got []Delta
	cut := errors.New("cut")
	resp, err := AnswerByTool(t.Context(), r, func(d Delta) { got = append(got, d) }, false, func(_ context.Context, _ Request, onDelta func(Delta)) (Response, error) {
		for _, d := range []Delta{{Text: "So"}, {Index: 0, CallID: "a", Name: "f"}, {Index: 0, Arguments: "{}"}, {Index: 1, CallID: "b", Name: FinalAnswer}, {Index: 1, Arguments: `{"a":`}, {Index: 1, Arguments: "1}"}} {
			onDelta(d)
		}
		return Response{Parts: []state.Part{{Type: state.PartToolCall, ID: "b", Name: FinalAnswer, Arguments: `{"a":1}`}}}, cut
	})
	want := []Delta{{Text: "So"}, {CallID: "a", Name: "f"}, {Arguments: "{}"}, {Text: `{"a":`}, {Text: "1}"}}
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, cut) || len(resp.Parts) != 1 || resp.Parts[0].Type != state.PartText {
		t.Errorf("%+v, %v, deltas (-want +got):\n%s", resp, err, diff)
	}
}
