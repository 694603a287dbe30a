package gateway_test

import (
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A message whose expression fails becomes a dead letter at its first delivery, so it delays no signals behind it.
func TestFailingExpressionDelaysNoSignal(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("CHAT", "chat.>")
	c := s.tenant("default")
	run, err := s.client("default", access.Submitter).Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.put(c, "chat", `{"stream": "CHAT", "from": "all", "filter": "event.kind != 'none'", "signal": {"run": "event.run", "message": "event.text"}}`)
	for _, body := range []string{
		`{"run":"x","text":"no kind"}`, `{"kind":"a","text":"no run"}`, fmt.Sprintf(`{"kind":"a","run":%q}`, run.ID), // each expression fails
		fmt.Sprintf(`{"kind":"a","run":%q,"text":"hello"}`, run.ID),
	} {
		s.publish("chat.x", body)
	}
	s.until(c, "chat", func(st api.TriggerStatus) bool { return st.Dead == 3 })
	s.idle(c, "chat")
	if pending, err := s.pending(run.ID); err != nil || len(pending) != 1 {
		t.Errorf("the run has %d signals, %v", len(pending), err)
	}
	names := s.consumers("CHAT")
	if len(names) != 1 {
		t.Fatalf("consumers: %v", names)
	}
	consumer, err := s.js.Consumer(t.Context(), "CHAT", names[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := consumer.CachedInfo().Delivered.Consumer; n != 4 {
		t.Errorf("%d deliveries of 4 messages", n)
	}
}

// A trigger whose agent does not exist is stored with a warning.
func TestTriggerOfMissingAgent(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	c := s.tenant("default")
	for name, want := range map[string]int{"a": 0, "nobody": 1} {
		made := s.put(c, "x", fmt.Sprintf(`{"stream": "ORDERS", "run": {"agent": %q}}`, name))
		if len(made.Warnings) != want || want > 0 && (made.Warnings[0].Name != name || made.Warnings[0].At != "run.agent") {
			t.Errorf("agent %s: warnings %+v, want %d", name, made.Warnings, want)
		}
	}
}
