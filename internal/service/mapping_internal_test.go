package service

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The problem of a delivery names an expression only if there is one.
func TestUnmapped(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]api.HookRun{
		"hook h: the whole event cannot be the input (json: unsupported value: +Inf): set run.input to an expression": {Agent: "a"},
		"hook h: an expression of run failed (run.input: no such key: x":                                              {Agent: "a", Input: "event.x"},
	} {
		m, err := compileMapping(sourceHook, "", &run, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := delivery{name: "h", mapping: m, Event: hookin.Event{Body: map[string]any{"n": math.Inf(1)}}}
		d.values = evaluationOf(d.Event)
		_, err = m.request(d)
		if got := ProblemOf(d.unmapped("run", err)).Detail; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", then deliver again from the sender") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The run that a delivery starts has what the settings name. An input that is neither a text nor a list of messages
// becomes a text.
func TestMappedRun(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		``:              `"{\"id\":7,\"text\":\"hi\"}"`,
		`event.text`:    `"hi"`,
		`event.id`:      `"7"`,
		`event`:         `"{\"id\":7,\"text\":\"hi\"}"`,
		`event.id == 7`: `"true"`,
		`[{"role": "user", "parts": [{"type": "text", "text": event.text}]}]`: `[{"parts":[{"text":"hi","type":"text"}],"role":"user"}]`,
	} {
		run := api.HookRun{Agent: "a", Input: input, Priority: "high", Variables: `{"n": event.id}`, Metadata: map[string]string{"from": "event.text", "about": "delivery"}}
		m, err := compileMapping(sourceHook, "", &run, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := delivery{name: "h", mapping: m, Event: hookin.Event{ID: "d-1", Body: map[string]any{"id": 7.0, "text": "hi"}}}
		d.values = evaluationOf(d.Event)
		got, err := m.request(d)
		if err != nil {
			t.Errorf("%s: %v", input, err)
		}
		if diff := cmp.Diff(api.SubmitRequest{
			Agent: "a", Input: []byte(want), Priority: "high", Variables: []byte(`{"n":7}`),
			Metadata: map[string]string{"from": "hi", "about": "d-1", "hook": "h", metadataDelivery: "d-1"},
		}, got); diff != "" {
			t.Errorf("%s:\n%s", input, diff)
		}
	}
}

// A signal is a message with its mode, or an answer, which has none.
func TestMappedSignal(t *testing.T) {
	t.Parallel()
	hi := "hi"
	for _, test := range []struct {
		signal api.HookSignal
		want   api.SignalRequest
	}{
		{api.HookSignal{Run: "event.run", Answer: "event.text"}, api.SignalRequest{Answer: &hi}},
		{api.HookSignal{Run: "event.run", Message: "event.text"}, api.SignalRequest{Message: api.Text(hi)}},
		{api.HookSignal{Run: "event.run", Message: "event.text", Mode: api.ModeInterrupt}, api.SignalRequest{Message: api.Text(hi), Mode: api.ModeInterrupt}},
	} {
		m, err := compileMapping(sourceHook, "", nil, &test.signal)
		if err != nil {
			t.Errorf("%+v: %v", test.signal, err)
			continue
		}
		d := delivery{name: "h", mapping: m, Event: hookin.Event{Body: map[string]any{"run": "r", "text": hi}}}
		d.values = evaluationOf(d.Event)
		if to, err := m.to(d.values); to != "r" || err != nil {
			t.Errorf("%+v: for run %q, %v", test.signal, to, err)
		}
		got, err := m.signalOf(d)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v\n%s", test.signal, err, diff)
		}
	}
}
