package provenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each argument is attributed to the place where it was read first; arguments without a source are not named.
func TestSources(t *testing.T) {
	t.Parallel()
	call := func(id, name string) state.Entry {
		return state.Entry{Type: state.EntryModel, Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartToolCall, ID: id, Name: name, Arguments: "{}"}}}}
	}
	answer := func(id, name, text string, origin state.Origin, turn int) state.Entry {
		m := state.ToolResult(id, text, false)
		m.Parts[0].Origin, m.Turn = origin, turn
		return state.Entry{Type: state.EntryTool, CallID: id, Name: name, Message: &m}
	}
	task := state.UserText("Pay for the office chairs.")
	task.Parts[0].Origin = state.OriginAgent
	given := state.ToolResult("c0", "the fax number is 4711", false)
	log := []state.Entry{
		{Type: state.EntrySubmitted, Messages: []state.Message{task, *call("c0", "ask_fax").Message, given}},
		call("c1", "fetch"), answer("c1", "fetch", "IBAN DE89 3704 0044 0532 0130 00", state.OriginWeb, 1),
		call("c1", "lookup"), answer("c1", "lookup", "order A-1742, iban de89370400440532013000", "", 2),
		call("c2", "ask_user"), answer("c2", "ask_user", "Send it to Bob Smith.", state.OriginPerson, 3),
	}
	args := `{"iban": "DE89370400440532013000", "order": {"ids": ["A-1742"]}, "to": "Bob Smith", "note": "office chairs", "fax": 4711, "amount": 9}`
	var got []string
	for _, s := range provenance.Sources(log, args) {
		got = append(got, s.String())
	}
	want := []string{
		"note also occurs in the answer of another agent",
		"fax also occurs in the result of ask_fax",
		"iban also occurs in the web content that fetch returned in turn 1",
		"order.ids[0] also occurs in the result of lookup in turn 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, none := range []string{`{}`, `[1]`, `{"a"`, `{"to": "Bob Smith"}`} {
		if got := provenance.Sources(log, none); got != nil {
			t.Errorf("%s: %v", none, got)
		}
	}
}

// The list of sources is short and deterministic, however many arguments have the same text and however long
// their names are.
func TestSourcesAreBounded(t *testing.T) {
	t.Parallel()
	var fields []string
	for i := range 900 {
		fields = append(fields, fmt.Sprintf(`"%s%d": "the same long text again and again"`, strings.Repeat("n", 20), i))
	}
	fields = append(fields, fmt.Sprintf(`"%s": "7"`, strings.Repeat("ä", 2000)))
	args := "{" + strings.Join(fields, ",") + "}"
	log := result("7, " + strings.Repeat("the same long text again and again ", 20_000))
	first := provenance.Sources(log, args)
	if len(first) != 8 {
		t.Errorf("%d are named", len(first))
	}
	for _, s := range first {
		if len(s.Argument) > 110 {
			t.Errorf("a name has %d bytes", len(s.Argument))
		}
	}
	for range 3 {
		if diff := cmp.Diff(first, provenance.Sources(log, args)); diff != "" {
			t.Error(diff)
		}
	}
}
