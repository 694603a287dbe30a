package provenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func said(m state.Message) []state.Entry { return []state.Entry{{Messages: []state.Message{m}}} }

func result(text string) []state.Entry {
	m := state.ToolResult("c1", text, false)
	return []state.Entry{{Messages: []state.Message{state.UserText("Pay invoice A-17.")}}, {Type: state.EntryTool, Message: &m}}
}

// Text from a tool, a page or another agent is found in arguments, in any notation.
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
		`{"to":"Mallory"`:                                true, // not JSON
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

// A value is recognized in any notation of its number, letters or escapes, and a long number also within a
// text. Values that only look alike are not.
func TestFromUntrustedSpelling(t *testing.T) {
	t.Parallel()
	const iban = "DE89370400440532013000"
	wide := strings.Map(func(r rune) rune { return r + 0xfee0 }, iban)
	for _, tt := range []struct {
		result, args string
		want         bool
	}{
		{"transfer 900 EUR", `{"amount":900.0}`, true},
		{"transfer 900 EUR", `{"amount":9e2}`, true},
		{"transfer 900 EUR", `{"amount":"900.00"}`, true},
		{"transfer 12500 EUR", `{"amount":12500.0}`, true},
		{"transfer 12500 EUR", `{"amount":1.25e4}`, true},
		{"transfer 12,500 EUR", `{"amount":12500.00}`, true},
		{`{"amount":1.25e4}`, `{"amount":12500}`, true},
		{"pay 5.50", `{"amount":5.5}`, true},
		{"pay -5,50", `{"amount":5.5}`, true},
		{"pay 0.50.", `{"amount":0.5}`, true},
		{"pay 9000", `{"amount":900.0}`, false},
		{"pay 5.51", `{"amount":5.5}`, false},
		{"at 10:00, item X12e4Y", `{"amount":0,"n":120000}`, false},
		{"1 item", `{"version":"1.0"}`, false},
		{"pay 7", `{"amount":1e999999999,"n":1e-300}`, false},

		{"send to M\u00e1laga Company", `{"to":"Ma\u0301laga Company"}`, true},
		{"send to Ma\u0301laga Company", `{"to":"M\u00e1laga Company"}`, true},
		{"send to Ma\u0301l", `{"to":"M\u00c1L"}`, true},
		{"pay to " + wide, `{"to":"` + iban + `"}`, true},
		{"pay to " + iban, `{"to":"` + wide + `"}`, true},
		{"pay \uff19\uff10\uff10", `{"amount":900}`, true},
		{"pay \ufb01nance", `{"to":"finance"}`, true},
		{"pay STRASSE12", `{"to":"stra\u00dfe12"}`, true},
		{"\u039f\u0394\u039f\u03a3", `{"to":"\u03bf\u03b4\u03cc\u03c2"}`, false}, // the accent is a separate character
		{"\u039f\u0394\u039f\u03a3", `{"to":"\u03bf\u03b4\u03bf\u03c2"}`, true},

		{"pay to " + iban, `{"to":["DE8","937","040","044","053","201","300","0"]}`, true},
		{"pay to " + iban, `{"to":["` + strings.Join(strings.Split(iban, ""), `","`) + `"]}`, true},
		{"to Mallory", `{"to":[["Mal","lor","y"]]}`, true},
		{"it depends", `{"languages":["en","de"]}`, false},

		{"account 0532013000 please", `{"memo":"acct 0532013000 invoice 7"}`, true},
		{"account 0532 0130 00 please", `{"memo":"acct 0532013000 invoice 7"}`, true},
		{"account 0532013000 please", `{"memo":"acct 0532 0130 00 invoice 7"}`, true},
		{"account 0532013000 please", `{"memo":"0532013000  1"}`, true},
		{"account 0532013000 please", `{"memo":"0532013000 1"}`, true},
		{"IBAN " + iban, `{"memo":"acct 0532013000 invoice 7"}`, true},
		{"order 53201 of 2026-11-20", `{"memo":"see 53201 please, on 2026-11-21"}`, false},
		{"account 0532013001 please", `{"memo":"acct 0532013000 invoice 7"}`, false},

		{strings.Repeat("\ufdfa", 300_000), `{"x":"unheard"}`, true}, // more than is compared, because it is one character in 33 bytes
		{"nothing", `{"x":"` + strings.Repeat("\ufdfa", 20_000) + `"}`, true},
		{strings.Repeat("a\u0301", 200_000), `{"x":"unheard"}`, false},
	} {
		if got := provenance.FromUntrusted(result(tt.result), tt.args); got != tt.want {
			t.Errorf("%.60q in %.60q: %v, want %v", tt.args, tt.result, got, tt.want)
		}
		compared := len(tt.result)+len(tt.args) < 10_000
		if got, want := len(provenance.Sources(result(tt.result), tt.args)) > 0, tt.want && compared; got != want {
			t.Errorf("%.60q in %.60q: has a source: %v, want %v", tt.args, tt.result, got, want)
		}
	}
}

// Text from people and from Turnpike itself is trusted.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	call := `{"to":"mallory"}`
	synthetic := state.ToolResult("c1", "mallory", true)
	synthetic.Synthetic = true
	person, agent, tool := state.ToolResult("c1", "mallory", false), state.UserText("mallory"), state.ToolResult("c1", "mallory", false)
	person.Parts[0].Origin, agent.Parts[0].Origin = state.OriginPerson, state.OriginAgent
	summary, remark := state.UserText("mallory"), state.UserText("mallory")
	summary.Synthetic, remark.Synthetic, summary.Parts[0].Origin = true, true, state.OriginTool
	image := state.ToolResult("c1", "", false, state.Image{URL: "https://x.example/y.png"})
	for name, tt := range map[string]struct {
		log  []state.Entry
		want bool
	}{
		"nothing":           {nil, false},
		"a user":            {said(state.UserText("mallory")), false},
		"Turnpike":          {said(synthetic), false},
		"an answer":         {said(person), false},
		"a remark":          {said(remark), false},
		"a summary":         {said(summary), true},
		"a tool":            {said(tool), true},
		"another agent":     {said(agent), true},
		"an image, unread":  {said(image), true},
		"a provider's tool": {said(state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartProviderTool, Name: "web_search", Content: "T"}}}), true},
		"a response before": {[]state.Entry{{Type: state.EntryModel, Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "mallory"}}}}}, false},
	} {
		if got := provenance.FromUntrusted(tt.log, call); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if got := provenance.FromUntrusted(tt.log, `{"to":`); got != tt.want {
			t.Errorf("%s: arguments that are not JSON: %v, want %v", name, got, tt.want)
		}
		if got := provenance.Seen(tt.log); got != tt.want {
			t.Errorf("%s: seen %v, want %v", name, got, tt.want)
		}
	}
}
