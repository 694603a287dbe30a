package natsstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// Processes share timers, by the server's clock. A timer put by one process is claimed once by another,
// although the first one's index may lag, and a removed timer is gone for all.
func TestTimersOfProcesses(t *testing.T) {
	t.Parallel()
	nc, prefix := testbed.NATS(t), "t"+ulid.Make().String()
	open := func(skew time.Duration) *natsstore.Store {
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix, Now: func() time.Time { return time.Now().Add(skew) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	claim := func(s *natsstore.Store) []state.TimerClaim {
		t.Helper()
		claims, err := s.ClaimTimers(t.Context(), "schedule", 9, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return claims
	}
	put := func(s *natsstore.Store, name string, due time.Time) state.TimerID {
		t.Helper()
		id := state.TimerID{Tenant: "acme", Kind: "schedule", Name: name}
		if err := s.PutTimer(t.Context(), id, due); err != nil {
			t.Fatal(err)
		}
		return id
	}
	a, b := open(2*time.Hour), open(-2*time.Hour)
	put(a, "soon", time.Now().Add(time.Hour))
	due := put(a, "due", time.Now().Add(-time.Second))
	var claims []state.TimerClaim
	testbed.Eventually(t, "the other process claims the timer", func() error {
		if claims = claim(b); len(claims) == 0 {
			return errors.New("no timer is due")
		}
		return nil
	})
	if len(claims) != 1 || claims[0].TimerID != due {
		t.Fatalf("claims %+v, want one of %v", claims, due)
	}
	if again := claim(a); len(again) > 0 {
		t.Errorf("two processes have claimed %+v", again)
	}
	if err := a.AckTimer(t.Context(), claims[0], time.Time{}); err != nil { // whichever process acknowledges
		t.Fatal(err)
	}
	for _, s := range []*natsstore.Store{a, b, open(0)} {
		if _, err := s.Timer(t.Context(), due); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("a removed timer = %v, want ErrNotFound", err)
		}
		if again := claim(s); len(again) > 0 {
			t.Errorf("removed timers are claimed: %+v", again)
		}
	}
	put(b, "late", time.Now().Add(-time.Minute))
	if late := claim(open(0)); len(late) != 1 || late[0].Name != "late" {
		t.Errorf("a new process claims %+v, want the due timer", late)
	}
}
