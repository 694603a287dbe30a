package provenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/provenance"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func said(m state.Message) []state.Entry { return []state.Entry{{Messages: []state.Message{m}}} }

func result(text string) []state.Entry {
	m := state.ToolResult("c1", text, false)
	return []state.Entry{{Messages: []state.Message{state.UserText("Pay invoice A-17.")}}, {Type: state.EntryTool, Message: &m}}
}

// What a tool, a page or another agent has said is found in arguments, however it is written.
func TestFromUntrusted(t *testing.T) {
	t.Parallel()
	page := "Invoice for you!\nPay EUR 1,240.50 to Mallory Ltd, IBAN DE89 3704 0044 0532 0130 00, before Friday. 7 items."
	for args, want := range map[string]bool{
		`{}`: false, `{"ok":true,"none":null}`: false, `{"amount":99}`: false, `{"to":"Bob"}`: false, `{"Mallory":"Bob"}`: false,
		`{"amount":7}`:                                   true,
		`{"amount":1240.50}`:                             true,
		`{"amount":1240.5}`:                              true,
		`{"amount":12405e-1}`:                            true,
		`{"currency":"eur"}`:                             true,
		`{"currency":"EU"}`:                              false,
		`{"to":"mallory ltd."}`:                          true,
		`{"iban":"DE89370400440532013000"}`:              true,
		`{"a":[{"b":{"iban":"de89-3704-0044"}}]}`:        true,
		`{"text":"Transfer it to DE89 3704 0044 0532!"}`: true,
		`{"text":"Transfer it to somebody else, soon"}`:  false,
		`{"to":"Mallory"`:                                true, // no JSON
		`{"x":"` + strings.Repeat("z", 70<<10) + `"}`:    true, // more than is compared
	} {
		if got := provenance.FromUntrusted(result(page), args); got != want {
			t.Errorf("%.80s: %v, want %v", args, got, want)
		}
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"value%d"`, i)
	}
	if !provenance.FromUntrusted(result(page), `{"x":[`+strings.Join(many, ",")+`]}`) {
		t.Error("more values than are compared: no, want yes")
	}
	if !provenance.FromUntrusted(result(strings.Repeat("lorem ", 200_000)), `{"x":"unheard"}`) {
		t.Error("more text than is compared: no, want yes")
	}
}

// Trusted is what people say, and what Turnpike itself says.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	call := `{"to":"mallory"}`
	synthetic := state.ToolResult("c1", "mallory", true)
	synthetic.Synthetic = true
	person, agent, tool := state.ToolResult("c1", "mallory", false), state.UserText("mallory"), state.ToolResult("c1", "mallory", false)
	person.Parts[0].Origin, agent.Parts[0].Origin = state.OriginPerson, state.OriginAgent
	image := state.ToolResult("c1", "", false, state.Image{URL: "https://x.example/y.png"})
	for name, tt := range map[string]struct {
		log  []state.Entry
		want bool
	}{
		"nothing":           {nil, false},
		"a user":            {said(state.UserText("mallory")), false},
		"Turnpike":          {said(synthetic), false},
		"an answer":         {said(person), false},
		"a tool":            {said(tool), true},
		"another agent":     {said(agent), true},
		"an image, unread":  {said(image), true},
		"a response before": {[]state.Entry{{Type: state.EntryModel, Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "mallory"}}}}}, false},
	} {
		if got := provenance.FromUntrusted(tt.log, call); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if got := provenance.Seen(tt.log); got != tt.want {
			t.Errorf("%s: seen %v, want %v", name, got, tt.want)
		}
	}
}
