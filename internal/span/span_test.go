package span_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// An external trace context is kept if it is valid, and nothing else of the header.
func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		parent: parent,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
		"": "", "00-x": "", "a secret": "", strings.Repeat("0", 1<<16): "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
	} {
		if got := span.Clean(in); got != want {
			t.Errorf("Clean(%.60q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{parent, "", "01-" + parent[3:] + "-more", "ff-" + parent[3:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := span.Clean(in)
		if out != "" && len(out) != len(parent) || span.Clean(out) != out {
			t.Errorf("Clean(%q) = %q, and again %q", in, out, span.Clean(out))
		}
	})
}

func TestLinks(t *testing.T) {
	t.Parallel()
	ctx := span.Under(t.Context(), parent)
	other := strings.Replace(parent, "b7ad", "aaaa", 1)
	if n := len(span.Links(ctx, parent)) + len(span.Links(ctx, "")) + len(span.Links(ctx, "x")); n != 0 {
		t.Errorf("%d links to something that is not another span", n)
	}
	if links := span.Links(ctx, other); len(links) != 1 || links[0].SpanContext.SpanID().String()[:4] != "aaaa" {
		t.Errorf("Links = %v", links)
	}
	// The caller's span does not leak into spans with another parent, or none.
	if got := span.Parent(span.Under(ctx, "")); got != "" {
		t.Errorf("Under nothing = %q", got)
	}
	if got := span.Parent(context.Background()); got != "" {
		t.Errorf("Parent without a span = %q", got)
	}
}

func said(role state.Role, text string) state.Message {
	return state.Message{Role: role, Parts: []state.Part{{Type: state.PartText, Text: text}}}
}

// Content attributes have the form of the semantic conventions.
func TestContent(t *testing.T) {
	t.Parallel()
	system, input := span.Input([]state.Message{
		said(state.RoleSystem, "be kind"),
		said(state.RoleUser, "hi"),
		{Role: state.RoleAssistant, Parts: []state.Part{
			{Type: state.PartThinking, Text: "hm"}, {Type: state.PartToolCall, ID: "c1", Name: "look", Arguments: `{"at": 1}`},
			{Type: state.PartToolCall, ID: "c2", Name: "look", Arguments: `{"at`},
			{Type: state.PartProviderTool, ID: "p1", Name: "web_search", Arguments: `{"q":"x"}`, Content: "found"},
		}},
		{Role: state.RoleUser, Parts: []state.Part{
			{Type: state.PartImage, MediaType: "image/gif", Data: "AAAAAA"}, {Type: state.PartFile, Name: "a.pdf", MediaType: "application/pdf", Bytes: 7},
		}},
		state.ToolResult("c1", "nothing", false, state.Image{MediaType: "image/png", Data: "AAAA"}),
	})
	if want := `[{"type":"text","content":"be kind"}]`; system != want {
		t.Errorf("system_instructions = %s, want %s", system, want)
	}
	want := `[{"role":"user","parts":[{"type":"text","content":"hi"}]},` +
		`{"role":"assistant","parts":[{"type":"reasoning","content":"hm"},{"type":"tool_call","id":"c1","name":"look","arguments":{"at":1}},` +
		`{"type":"tool_call","id":"c2","name":"look","arguments":"{\"at"},` +
		`{"type":"tool_call","id":"p1","name":"web_search","arguments":{"q":"x"}},{"type":"tool_call_response","id":"p1","response":"found"}]},` +
		`{"role":"user","parts":[{"type":"image","mime_type":"image/gif","omitted_bytes":6},{"type":"file","name":"a.pdf","mime_type":"application/pdf","omitted_bytes":7}]},` +
		`{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"nothing"},{"type":"image","mime_type":"image/png","omitted_bytes":4}]}]`
	if diff := cmp.Diff(want, input); diff != "" {
		t.Errorf("input.messages:\n%s", diff)
	}
	if got, want := span.Output([]state.Part{{Type: state.PartText, Text: "ok"}}, "stop"), `[{"role":"assistant","parts":[{"type":"text","content":"ok"}],"finish_reason":"stop"}]`; got != want {
		t.Errorf("output.messages = %s, want %s", got, want)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "bro\xffken", strings.Repeat("é", span.MaxPart), strings.Repeat("\x80", 2*span.MaxPart)} {
		if got := span.Text(text); !utf8.ValidString(got) || len(got) > span.MaxPart+8 || len(text) < 6 && got != text {
			t.Errorf("Text(%.20q) = %.40q", text, got)
		}
	}
}

// However long a conversation is, its attribute is bounded, valid JSON, and includes the end.
func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	var messages []state.Message
	var parts []state.Part
	for range 500 {
		messages = append(messages, said(state.RoleUser, strings.Repeat("é", span.MaxPart)), said(state.RoleSystem, strings.Repeat("x", 100)))
		parts = append(parts, state.Part{Type: state.PartToolCall, Arguments: `{"a":"` + strings.Repeat("y", 2*span.MaxPart) + `"}`})
	}
	messages = append(messages, said(state.RoleUser, "the last"))
	system, input := span.Input(messages)
	for name, text := range map[string]string{"system": system, "input": input, "output": span.Output(parts, "stop")} {
		if len(text) > 2*span.MaxContent || !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if !strings.Contains(input, "the last") {
		t.Error("the last message is left out")
	}
}

// large returns the text of a message that has almost all of MaxContent.
func large(text string) []state.Part {
	return slices.Repeat([]state.Part{{Type: state.PartText, Text: text + strings.Repeat("x", span.MaxPart-256)}}, span.MaxContent/span.MaxPart)
}

// An attribute has the messages from one of the conversation to its end, without a gap: none from before a message that
// did not fit. Instructions and answers have their beginning.
func TestContentHasNoGap(t *testing.T) {
	t.Parallel()
	huge := append(large("a"), large("b")...)
	for name, c := range map[string]struct {
		messages []state.Message
		want     string
	}{
		"between": {
			[]state.Message{said(state.RoleUser, "first"), {Role: state.RoleUser, Parts: huge}, said(state.RoleUser, "last")},
			`[{"role":"user","parts":[{"type":"text","content":"last"}]}]`,
		},
		"the newest": {[]state.Message{said(state.RoleUser, "first"), {Role: state.RoleUser, Parts: huge}}, `[]`},
		"none":       {[]state.Message{said(state.RoleSystem, "be kind")}, `[]`},
	} {
		if _, input := span.Input(c.messages); input != c.want {
			t.Errorf("%s: %.200s, want %s", name, input, c.want)
		}
	}
	system, _ := span.Input([]state.Message{said(state.RoleSystem, "first"), {Role: state.RoleSystem, Parts: huge}, said(state.RoleSystem, "last")})
	output := span.Output(huge, "stop")
	for name, got := range map[string]string{"instructions": system, "output": output} {
		if !strings.Contains(got, `"a`) || strings.Contains(got, `"b`) || strings.Contains(got, "last") {
			t.Errorf("%s do not have the beginning only: %.200s", name, got)
		}
	}
	if !strings.HasPrefix(system, `[{"type":"text","content":"first"}`) {
		t.Errorf("the instructions begin with %.200s", system)
	}
}
