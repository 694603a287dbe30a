package natsstore_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// change changes the settings of the stream of runs and timers.
func change(t *testing.T, nc *nats.Conn, prefix string, set func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), natsstore.StreamName(prefix))
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	set(&cfg)
	if stream, err = js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return stream
}

// message is a signal with a message for a run.
func message(id string) state.Signal {
	m := state.UserText("hello")
	return state.Signal{ID: id, Message: &m}
}

// A write that the server refuses is an error: its caller must not report what is not stored.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	nc, p := testbed.NATS(t), prefix()
	s := open(t, nc, p)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	due := state.TimerID{Tenant: "acme", Kind: "schedule", Name: "due"}
	if err := s.PutTimer(t.Context(), due, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	change(t, nc, p, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 })
	if _, err := s.Signal(t.Context(), run.ID, message("s1"), time.Hour); err == nil {
		t.Error("a signal that the server refuses is reported as stored")
	}
	if _, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}); err == nil {
		t.Error("a claim that the server refuses is granted")
	}
	if claims, err := s.ClaimTimers(t.Context(), "schedule", 9, time.Hour); err == nil || len(claims) > 0 {
		t.Errorf("ClaimTimers = %+v, %v; want the error of the server", claims, err)
	}
	if err := s.PutTimer(t.Context(), due, time.Now()); err == nil {
		t.Error("a timer that the server refuses is reported as stored")
	}
	if st, err := s.Load(t.Context(), run.ID); err != nil || st.Status != state.Queued {
		t.Errorf("the run is %s, %v", st.Status, err)
	}
}

// A due run whose write the server refuses does not hold up the others: a sweep returns its error only if no other run
// is due (I2).
func TestSweepBesideARefusedWrite(t *testing.T) {
	t.Parallel()
	nc, p := testbed.NATS(t), prefix()
	s := open(t, nc, p)
	good, bad := newRun(t), newRun(t)
	bad.Metadata = map[string]string{"k": strings.Repeat("x", 20_000)}
	for _, run := range []state.State{good, bad} {
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: -time.Hour}); err != nil { // due
			t.Fatal(err)
		}
	}
	change(t, nc, p, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10_000 })
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 1 || due[0].Run != good.ID {
		t.Errorf("with another run due, Sweep = %+v, %v; want run %s", due, err, good.ID)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err == nil || len(due) > 0 {
		t.Errorf("with no other run due, Sweep = %+v, %v; want the error of the server", due, err)
	}
}

// A write whose answer is lost counts if it is stored, and is not repeated (I1).
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	nc, p := testbed.NATS(t), prefix()
	s := open(t, nc, p)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	stream := change(t, nc, p, func(c *jetstream.StreamConfig) { c.NoAck = true })
	subject := p + ".state.run." + string(run.ID)
	created, err := stream.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int32
	// The server does not answer; something else answers with an error once the message is stored.
	_, err = nc.Subscribe(subject, func(m *nats.Msg) {
		testbed.Eventually(t, "the message is stored", func() error {
			last, err := stream.GetLastMsgForSubject(t.Context(), subject)
			if err == nil && last.Sequence == created.Sequence {
				err = errors.New("there is no other message")
			}
			return err
		})
		answered.Add(1)
		_ = m.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"system temporarily unavailable"}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Signal(t.Context(), run.ID, message("s1"), time.Hour)
	if err != nil {
		t.Errorf("a signal whose answer was lost = %+v, %v", w, err)
	}
	if n := answered.Load(); n != 1 {
		t.Errorf("the signal was sent %d times, want once", n)
	}
}
