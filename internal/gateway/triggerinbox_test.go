package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A full inbox of one run does not block signals to other runs: the message becomes a dead letter.
func TestTriggerPassesAFullInbox(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("CHAT", "chat.>")
	c := s.tenant("default")
	user := s.client("default", access.Submitter)
	var ids []string
	for range 2 {
		run, err := user.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	large := []byte(`"` + strings.Repeat("x", 900_000) + `"`) // nine fit
	for err := error(nil); !errors.Is(err, api.ErrFull); {
		if _, err = user.Signal(t.Context(), ids[0], api.SignalRequest{Message: large}); err != nil && !errors.Is(err, api.ErrFull) && !errors.Is(err, api.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	s.put(c, "chat", `{"stream": "CHAT", "signal": {"run": "event.run", "message": "event.text"}}`)
	for _, id := range ids {
		s.publish("chat.x", fmt.Sprintf(`{"run":%q,"text":"%s"}`, id, strings.Repeat("x", 600_000)))
	}
	s.until(c, "chat", func(st api.TriggerStatus) bool { return st.Dead == 1 })
	s.idle(c, "chat")
	if pending, err := s.pending(ids[1]); err != nil || len(pending) != 1 {
		t.Errorf("the other run has %d signals, %v", len(pending), err)
	}
}
