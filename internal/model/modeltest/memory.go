package modeltest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Memory tests an adapter of Turnpike's own, which counts what a response keeps. It sends responses that exceed
// the worker's memory: their texts, thinking, arguments and calls count while they arrive. The connection breaks before
// an event that repeats all of them. The error has what was received so far, and of this the text.
func Memory(t *testing.T, f Features, open Open) {
	e := exercise{f, open}
	long := strings.Repeat(strings.Repeat("x", 30_000)+" ", 80)
	written, err := json.Marshal(map[string]string{"text": strings.Repeat("x", 30_000)})
	if err != nil {
		t.Fatal(err)
	}
	calls := func(n int, arguments json.RawMessage) []model.ScriptedCall {
		out := make([]model.ScriptedCall, n)
		for i := range out {
			out[i] = model.ScriptedCall{Name: "write", Arguments: arguments}
		}
		return out
	}
	for name, s := range map[string]Script{
		"text":      {CutAfter: 1 << 20, Responses: []model.Scripted{{Text: long}}},
		"thinking":  {CutAfter: 1 << 20, Responses: []model.Scripted{{Thinking: long}}},
		"arguments": {CutAfter: 1200 << 10, Responses: []model.Scripted{{ToolCalls: calls(40, written)}}},
		"calls":     {Responses: []model.Scripted{{ToolCalls: calls(200, json.RawMessage(`{}`))}}},
	} {
		p, r := e.open(t, s)
		var asked int64
		_, deltas, err := generate(model.WithReceipt(t.Context(), func(n int64) bool { asked += n; return false }), p, ask(r, 0))
		m, said, received := e.class(t, err, model.Overloaded), "", 0
		for _, d := range deltas {
			said, received = said+d.Text, received+d.Len()
		}
		if m.Partial != said || m.Received != received || !m.Streamed {
			t.Errorf("%s: the error has a text of %d bytes, %d received and Streamed = %t, want %d, %d and true", name, len(m.Partial), m.Received, m.Streamed, len(said), received)
		}
		if asked == 0 || !strings.Contains(m.Message, "TURNPIKE_ANSWERS_MIB") {
			t.Errorf("%s: %d bytes were asked for, and the call returned %v; want an error about the memory of the worker", name, asked, err)
		}
	}
}
