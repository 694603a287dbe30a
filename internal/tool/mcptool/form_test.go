package mcptool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func form(t testing.TB, schema string) *mcp.ElicitParams {
	t.Helper()
	p := &mcp.ElicitParams{Message: "?"}
	if schema != "" && json.Unmarshal([]byte(schema), &p.RequestedSchema) != nil {
		t.Skip("no JSON")
	}
	return p
}

const (
	yesNo  = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
	order  = `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"default":2},"size":{"type":"string","enum":["s","l"]}},"required":["size"]}`
	amount = `{"type":"object","properties":{"n":{"type":"number"}}}`
	// Validating a value against this schema never terminates.
	endless = `{"type":"object","properties":{"x":{"type":"string","allOf":[{"$ref":"#/properties/x"}]}},"$ref":"#"}`
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	accept := func(content string) *mcp.ElicitResult {
		r := &mcp.ElicitResult{Action: actionAccept}
		if err := json.Unmarshal([]byte(content), &r.Content); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, test := range []struct {
		form, answer string
		want         *mcp.ElicitResult // nil: no answer
	}{
		{"", "accept", &mcp.ElicitResult{Action: actionAccept}},
		{"", "as you like", &mcp.ElicitResult{Action: actionAccept}},
		{"", " Decline ", &mcp.ElicitResult{Action: actionDecline}},
		{yesNo, "cancel", &mcp.ElicitResult{Action: actionCancel}},
		{yesNo, "yes", accept(`{"ok":true}`)},
		{yesNo, "NO", accept(`{"ok":false}`)},
		{yesNo, "perhaps", nil},
		{yesNo, `{"ok":"yes"}`, nil},
		{yesNo, `{"action":"accept","content":{"ok":true}}`, accept(`{"ok":true}`)},
		{yesNo, `{"action":"decline"}`, &mcp.ElicitResult{Action: actionDecline}},
		{order, `{"size":"l"}`, accept(`{"size":"l","n":2}`)},
		{order, `{"size":"xl"}`, nil},
		{order, `{"size":"s","n":0}`, nil},
		{order, "l", nil},
		{order, "accept", nil}, // size has no default
		{amount, " 1e3 ", accept(`{"n":1000}`)},
		{amount, "NaN", nil},
		{amount, "1e999", nil},
		{endless, "text", accept(`{"x":"text"}`)},
	} {
		got, err := answerOf(form(t, test.form), test.answer)
		if (test.want == nil) != (err != nil) {
			t.Errorf("%s to %s: error = %v", test.answer, test.form, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s to %s:\n%s", test.answer, test.form, diff)
		}
	}
}

// A question says how to answer it.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const url = "https://example.com/login"
	for _, test := range []struct{ form, url, want string }{
		{"", "", "?\nAnswer with accept\nor with decline or cancel."},
		{"", url, "?\nOpen " + url + ", and when you have done what it asks for, answer with accept\nor with decline or cancel."},
		{yesNo, url, "?\nOpen " + url + ", and when you have done what it asks for, answer with accept\nAnswer with ok (boolean)\nor with decline or cancel."},
		{yesNo, "", "?\nAnswer with ok (boolean)\nor with decline or cancel."},
		{order, "", "?\nAnswer with a JSON object of\n- n (integer, optional)\n- size (string, s, l)\nor with decline or cancel."},
	} {
		asked := form(t, test.form)
		asked.URL = test.url
		if got := question(asked); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.form, test.url, got, test.want)
		}
	}
}

// TestLargeAnswers: servers and answers within the size limits cost little.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	many := strings.TrimSuffix(strings.Repeat("1,", 50_000), ",")
	for name, test := range map[string]struct{ form, answer, want string }{
		"choices": {`{"properties":{"a":{"type":"array","items":{"enum":[` + many + `]}}}}`, `{"a":[` + strings.ReplaceAll(many, "1", "2") + `]}`, "50000 answers cannot be checked against the 50000 choices of the form: choose at most 10"},
		"large":   {amount, "1e999", "the number is too large: answer with a smaller one"},
		"NaN":     {amount, "NaN", "the answer is not a number: answer with one"},
		"a text":  {order, `{"size":"` + strings.Repeat("x", 1<<20) + `"}`, "validating"},
	} {
		_, err := answerOf(form(t, test.form), test.answer)
		if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 2*maxReason {
			t.Errorf("%s: %.300v, want %q", name, err, test.want)
		}
	}
}

// For any question and answer, the result is an answer or a reason to ask again.
func FuzzAnswer(f *testing.F) {
	for _, schema := range []string{"", yesNo, order, endless, `{"properties":{"a":{"type":"array","items":{"anyOf":[{"const":1}]}}}}`} {
		for _, answer := range []string{"accept", "decline", `{"ok":true}`, `{"action":"accept"}`, "1,2", "null", "[]"} {
			f.Add(schema, answer)
		}
	}
	f.Fuzz(func(t *testing.T, schema, answer string) {
		asked := form(t, schema)
		if question(asked) == "" {
			t.Error("no question")
		}
		r, err := answerOf(asked, answer)
		if (r == nil) == (err == nil) {
			t.Errorf("answer %+v, %v", r, err)
		}
	})
}

// A server can refer people to web pages only, not to URLs that run or read files.
func TestWherePeopleAreSent(t *testing.T) {
	t.Parallel()
	server := newServer()
	at := make(chan string, 1)
	add(server, "bars", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{Mode: "url", Message: "log in", URL: <-at, ElicitationID: "e"}})
	})
	s := overHTTP(t, server)
	bars := ready(t, caller(t, Config{}), s, "bars")
	for url, asks := range map[string]bool{
		"https://example.com/login?x=1": true, "http://127.0.0.1:8080/": true,
		"javascript:alert(1)": false, "file:///etc/passwd": false, "data:text/html,x": false, "https:///x": false, "vscode://x/y": false,
	} {
		at <- url
		r := try(t, bars, tool.Call{})
		if asked := r.Ask != nil; asked != asks || !asks && !r.IsError {
			t.Errorf("%s: %+v", url, r)
		}
	}
}
