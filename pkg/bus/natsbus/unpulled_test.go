package natsbus_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Messages that no process pulls are counted over all tenants, and Check reports them, until a process takes one.
func TestUnpulled(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{}, "acme", "evil")
	js := jet(t, nc)
	unpulled := func(queue string) int64 {
		all, err := b.Unpulled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[queue].Waiting
	}
	if n := unpulled(bus.UnpulledTurns); n != 0 {
		t.Errorf("%d turns wait in an empty deployment", n)
	}
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: newRun(), Version: 1, Priority: state.Normal}, "1"); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"acme.submit.a", "evil.submit.a", "evil.submit.b", "acme.abort.a", "evil.abort.a"} {
		if _, err := js.Publish(t.Context(), "turnpike.t."+word, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return unpulled(bus.UnpulledTurns) == 1 })
	eventually(t, func() bool { return unpulled(bus.UnpulledSubmissions) == 3 && unpulled(bus.UnpulledAborts) == 2 })
	reported := false
	for _, f := range b.Check(t.Context()) {
		reported = reported || !f.OK && !f.Fatal && strings.Contains(f.Detail, "waiting turns: 1, submissions: 3, aborts: 2")
	}
	if !reported {
		t.Error("Check does not report them")
	}
	submissions := submissionsOf(t, b)
	for range 3 {
		takeMessage(t, submissions)
	}
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Next(soon(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return unpulled(bus.UnpulledTurns) == 0 && unpulled(bus.UnpulledSubmissions) == 0 })
	q.Close() // its process dies with the turn that it holds
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: newRun(), Version: 1, Priority: state.Normal}, "2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		all, err := b.Unpulled(t.Context())
		return err == nil && all[bus.UnpulledTurns] == bus.Unpulled{Waiting: 1, Unacknowledged: 1}
	})
}
