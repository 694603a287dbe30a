package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A submission behind a thousand runs of another tenant does not wait in that tenant's queue.
func TestANoisyTenantIsAloneInItsQueue(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	many := s.client("many", access.Author, access.Submitter)
	if _, err := many.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := many.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, ""); err != nil {
			t.Fatal(err)
		}
	}
	one := s.run("one")
	fair, err := s.bus.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for ahead := 0; ; ahead++ {
		turn, err := fair.Next(ctx)
		if err != nil {
			t.Fatalf("after %d turns of others: %v", ahead, err)
		}
		if turn.Turn().Run == state.RunID(one.ID) {
			return
		}
	}
}
