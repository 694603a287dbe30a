package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A user who follows a run sees the current calls and their progress.
func TestPrinterShowsTools(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := watch.Printer{Out: &out}
	for _, data := range []string{
		`{"seq":null,"type":"tool.started","turn":1,"attempt":1,"call_id":"c","name":"import","worker":"w1"}`,
		`{"seq":null,"type":"tool.progress","turn":1,"attempt":1,"call_id":"c","name":"import","progress":"2 of 3: rows\n200"}`,
		`{"seq":2,"type":"tool.finished","turn":1,"attempt":1,"call_id":"c","name":"import","is_error":true,"message":{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"no"}]}}`,
	} {
		e, err := api.DecodeEvent([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		w.Show(e)
	}
	want := "  turn 1 · import started on w1\n  turn 1 · import: 2 of 3: rows 200\n  turn 1 ✗ import: no\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output:\n%s", diff)
	}
}

// The output of a run is printed once, in full; other answers are shortened.
func TestPrinterShowsTheOutputOnce(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 40) + "end"
	said := func(turn int, text string) string {
		return fmt.Sprintf(`{"seq":1,"type":"model.message","turn":%d,"message":{"role":"assistant","parts":[{"type":"text","text":%q}]}}`, turn, text)
	}
	finished := func(text string) string {
		return fmt.Sprintf(`{"seq":9,"type":"run.finished","turn":2,"status":"completed","reason":"completed","output":%q}`, text)
	}
	const next = `{"seq":2,"type":"transition","turn":1,"reason":"reflected"}`
	const delta = `{"seq":null,"type":"model.delta","turn":1,"attempt":1,"delta":{"text":"Hello."}}`
	const first = `{"seq":null,"type":"model.delta","turn":1,"attempt":1,"delta":{"text":"Well, "}}`
	const second = `{"seq":null,"type":"turn.started","turn":2,"attempt":1,"worker":"w1"}`
	const again = `{"seq":null,"type":"turn.started","turn":1,"attempt":2,"worker":"w2"}`
	for name, c := range map[string]struct {
		terminal bool
		events   []string
		want     string
	}{
		"an answer":              {false, []string{said(1, long), finished(long)}, "■ completed (completed)\n" + long + "\n"},
		"two answers":            {false, []string{said(1, "first"), next, said(2, "second"), finished("second")}, "  turn 1 · first\n  turn 1 ⟳ reflected\n■ completed (completed)\nsecond\n"},
		"an output of its own":   {false, []string{said(1, "raw"), finished("made")}, "  turn 1 · raw\n■ completed (completed)\nmade\n"},
		"streamed to a terminal": {true, []string{delta, said(1, "Hello."), finished("Hello.")}, "Hello.\n■ completed (completed)\n"},
		"streamed in two parts":  {true, []string{first, delta, said(1, "Well, Hello."), finished("Well, Hello.")}, "Well, Hello.\n■ completed (completed)\n"},
		"streamed in two turns":  {true, []string{first, said(1, "Well, "), next, second, delta, said(2, "Hello."), finished("Hello.")}, "Well, \n  turn 1 ⟳ reflected\nHello.\n■ completed (completed)\n"},
		"streamed again":         {true, []string{first, again, delta, said(1, "Hello."), finished("Hello.")}, "Well, \n  turn 1 · attempt 2 on w2\nHello.\n■ completed (completed)\n"},
		"streamed, but replaced": {true, []string{delta, said(1, "Hello."), finished("made")}, "Hello.\n■ completed (completed)\nmade\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			w := watch.Printer{Out: &out, Terminal: c.terminal}
			for _, data := range c.events {
				e, err := api.DecodeEvent([]byte(data))
				if err != nil {
					t.Fatal(err)
				}
				w.Show(e)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("output:\n%s", diff)
			}
		})
	}
}

// An error is printed in full, because it ends with the remedy.
func TestPrinterShowsErrorsWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 40) + "and start it."
	var out strings.Builder
	w := watch.Printer{Out: &out}
	e, err := api.DecodeEvent(fmt.Appendf(nil, `{"seq":2,"type":"tool.finished","turn":1,"name":"t","is_error":true,"message":{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":%q}]}}`, long))
	if err != nil {
		t.Fatal(err)
	}
	w.Show(e)
	if want := "  turn 1 ✗ t: " + long + "\n"; out.String() != want {
		t.Errorf("output:\n%s", out.String())
	}
}

// Only Turnpike's own color sequences reach the terminal: text from a tool cannot control it.
func TestPrinterColours(t *testing.T) {
	t.Parallel()
	const data = `{"seq":2,"type":"tool.finished","turn":1,"name":"t","is_error":true,"message":{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"\u001b[2Jno"}]}}`
	e, err := api.DecodeEvent([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	for colour, want := range map[bool]string{true: "\x1b[31m    turn 1 ✗ t: \ufffd[2Jno\x1b[0m\n", false: "    turn 1 ✗ t: \ufffd[2Jno\n"} {
		var out strings.Builder
		w := watch.Printer{Out: watch.Plain(&out), Colour: colour, Indent: "  "}
		w.Show(e)
		if out.String() != want {
			t.Errorf("colour %t: %q, want %q", colour, out.String(), want)
		}
	}
}

// A wait is printed with its cause and its end, a reflection with its confidence.
func TestPrinterShowsCauses(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := watch.Printer{Out: &out}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, data := range []string{
		`{"seq":2,"type":"run.waiting","turn":1,"reason":"waiting_schedule","detail":"model call failed (connection), retry in 2s: refused","waiting":{"reason":"waiting_schedule","expires_at":"` + at.Format(time.RFC3339) + `"}}`,
		`{"seq":3,"type":"reflect","turn":1,"confidence":0.7,"confidence_delta":0.2,"assessment":"progress"}`,
		`{"seq":4,"type":"progress","turn":2,"step":1,"action":"tool_call","target":"search"}`,
		`{"seq":5,"type":"run.finished","turn":2,"status":"cancelled","reason":"aborted_waiting","detail":"no longer needed"}`,
	} {
		e, err := api.DecodeEvent([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		w.Show(e)
	}
	want := "  turn 1 ⏸ waiting_schedule · model call failed (connection), retry in 2s: refused · continues at " + at.Local().Format(time.TimeOnly) +
		"\n  turn 1 · reflection: confidence 0.70 (+0.20) · progress\n  turn 2 · step 1: tool_call search\n■ cancelled (aborted_waiting)\n  no longer needed\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output:\n%s", diff)
	}
}

// A person who follows a run reads which calls wait for approval, what to look at before they approve, who decided, and
// which limits are near.
func TestPrinterShowsApprovals(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := watch.Printer{Out: &out}
	for _, data := range []string{
		`{"type":"run.waiting","turn":1,"reason":"waiting_approval","waiting":{"reason":"waiting_approval","calls":[
			{"id":"c1","tool":"pay","arguments":{"to":"Bob"},"needs":"approval","risk":"pays","args_from_untrusted":true,"sources":[{"argument":"to","origin":"web","turn":1,"tool":"fetch"}],
				"again":{"reason":"edited","original_arguments":{"to":"Al"}}},
			{"id":"c2","tool":"mail","arguments":{},"needs":"approval","args_from_untrusted":true},
			{"id":"c3","tool":"pick","arguments":{},"needs":"result"}]}}`,
		`{"type":"approval.decided","turn":1,"name":"pay","by":{"principal":"ann"},"approval":{"decision":"approve","shown":{"to":"Bob"},"arguments":{"to":"Eve"},"reason":"she asked"}}`,
		`{"type":"approval.decided","turn":1,"name":"mail","approval":{"decision":"deny","shown":{},"expired":true}}`,
		`{"type":"run.waiting","turn":1,"reason":"waiting_human_input","waiting":{"reason":"waiting_human_input","question":"which one?"}}`,
		`{"type":"budget.warning","turn":1,"limit":"cost_usd","used_fraction":0.8}`,
	} {
		e, err := api.DecodeEvent([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		w.Show(e)
	}
	want := `  turn 1 ⏸ waiting_approval
           pay {"to":"Bob"} · pays
           the model's arguments were {"to":"Al"}
           ! to also occurs in the web content that fetch returned in turn 1
           mail {}
           ! its arguments may come from tools, the web or other agents
  turn 1 · pay {"to":"Bob"} approved by ann as {"to":"Eve"}: she asked
  turn 1 · mail {} denied: no decision in time
  turn 1 ⏸ waiting_human_input
           which one?
  turn 1 ! budget.warning: cost_usd at 80 %
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output:\n%s", diff)
	}
}
