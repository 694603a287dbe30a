package natsstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// Cached logs are bounded in bytes, however few entries they have. Beyond that they are read again from the
// stream.
func TestLogsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	s := open(t, testbed.NATS(t), prefix())
	s.Hold(limit)
	text := strings.Repeat("x", limit/16)
	var runs []state.RunID
	for range 2 * limit / len(text) {
		run := newRun(t, state.UserText(text))
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second}); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run.ID)
	}
	check := func(when string) {
		if n := logBytes(s); n > limit || n < limit/2 {
			t.Errorf("%s %d KiB are held", when, n>>10)
		}
	}
	check("after all were created")
	for _, id := range runs {
		log, err := s.Log(t.Context(), id, 0, 0)
		if err != nil || len(log) != 1 || log[0].Messages[0].Text() != text {
			t.Fatalf("Log of %s has %d entries, %v", id, len(log), err)
		}
	}
	check("after all were read")
	for _, id := range runs {
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "token", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText(text)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "token", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	check("after all were committed")
}

func logBytes(s *natsstore.Store) (n int) {
	for _, log := range s.LogBytes() {
		for _, e := range log {
			for _, m := range e.Messages {
				n += len(m.Text())
			}
		}
	}
	return n
}
