package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// tenantBus returns a bus with these tenants.
func tenantBus(t *testing.T, nc *nats.Conn, cfg natsbus.Config, tenants ...string) *natsbus.Bus {
	t.Helper()
	b, err := natsbus.Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.KeepTenants(t.Context(), tenants); err != nil {
		t.Fatal(err)
	}
	return b
}

func submissionsOf(t *testing.T, b *natsbus.Bus) bus.Queue {
	t.Helper()
	q, err := b.Submissions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// takeMessage takes and acknowledges the next message.
func takeMessage(t *testing.T, q bus.Queue) bus.Message {
	t.Helper()
	m, err := q.Next(soon(t))
	if err == nil {
		err = m.Ack()
	}
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return m
}

// Message ids of different tenants are independent.
func TestTenantsShareNoMessageIDs(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{EventFeed: true}, "evil", "acme")
	js := jet(t, nc)
	run := newRun()
	for _, word := range []string{"submit.a", "abort." + string(run), "dead.normal", "events." + string(run)} {
		if !strings.HasPrefix(word, "submit") && !strings.HasPrefix(word, "abort") { // the first message creates those streams
			for _, tenant := range []string{"evil", "acme"} {
				if err := errors.Join(b.DeadLetter(t.Context(), bus.DeadLetter{Tenant: tenant}), b.PublishEvents(t.Context(), tenant, run, []bus.Event{{Seq: 1, Data: []byte("{}")}})); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, root := range []string{"turnpike.", "turnpike.t.evil.", "turnpike.t.acme."} {
			ack, err := js.Publish(t.Context(), root+word, []byte("{}"), jetstream.WithMsgID("order-17"))
			if err != nil || ack.Duplicate {
				t.Errorf("%s%s: %+v, %v; want it stored", root, word, ack, err)
			}
		}
	}
	q := submissionsOf(t, b)
	seen := map[string]int{}
	for range 3 {
		seen[takeMessage(t, q).Tenant()]++
	}
	if seen["default"] != 1 || seen["evil"] != 1 || seen["acme"] != 1 {
		t.Errorf("submissions taken: %v", seen)
	}
}

// A message that the bus cannot store is refused: a client of a tenant that is not open, or is deleted, gets an
// error. Open queues also deliver messages of tenants that are opened later.
func TestTenantsOpenAndClose(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{})
	other := tenantBus(t, nc, natsbus.Config{})
	q := submissionsOf(t, other)
	js := jet(t, nc)
	publish := func(word string) error {
		_, err := js.Publish(t.Context(), "turnpike.t.acme."+word, []byte("{}"), jetstream.WithRetryAttempts(0))
		return err
	}
	run := newRun()
	words := []string{"submit.a", "abort." + string(run)}
	refused := func() {
		t.Helper()
		for _, word := range words {
			if err := publish(word); !errors.Is(err, jetstream.ErrNoStreamResponse) {
				t.Errorf("publish to %s: %v, want no responders", word, err)
			}
		}
	}
	refused()
	if err := b.OpenTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if err := publish(word); err != nil {
			t.Errorf("publish to %s of an open tenant: %v", word, err)
		}
	}
	if m := takeMessage(t, q); m.Tenant() != "acme" || m.Key() != "a" {
		t.Errorf("taken: %s of %s", m.Key(), m.Tenant())
	}
	if err := publish("submit.left"); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	refused()
	if m := takeMessage(t, q); m.Key() != "left" {
		t.Errorf("taken: %s, want the messages stored before", m.Key())
	}
	if err := b.KeepTenants(t.Context(), []string{"acme"}); err != nil {
		t.Fatal(err)
	}
	if err := publish("submit.again"); err != nil {
		t.Errorf("publish to a tenant that exists again: %v", err)
	}
	if m := takeMessage(t, q); m.Key() != "again" {
		t.Errorf("taken: %s, want again", m.Key())
	}
	if err := b.CloseTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		if err := b.KeepTenants(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		_, err := js.Stream(t.Context(), "TURNPIKE_SUBMIT_acme")
		return errors.Is(err, jetstream.ErrStreamNotFound)
	})
	if _, err := js.Stream(t.Context(), "TURNPIKE_CONTROL_acme"); err != nil {
		t.Errorf("the stream with an undelivered abort: %v", err)
	}
	refused()
}

// A tenant with many messages in its stream does not delay the others.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{}, "evil", "loud", "quiet")
	js := jet(t, nc)
	large := make([]byte, 8<<10)
	for i := range 400 {
		for _, tenant := range []string{"evil", "loud"} {
			if _, err := js.PublishAsync("turnpike.t."+tenant+".submit.a", large, jetstream.WithMsgID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-js.PublishAsyncComplete()
	q := submissionsOf(t, b)
	for range 20 {
		takeMessage(t, q)
	}
	for range 10 {
		if _, err := js.Publish(t.Context(), "turnpike.t.quiet.submit.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	// A busy server may deliver a message late, especially from a stream that was empty, while the others have
	// hundreds of messages. Otherwise the stream has its turn after one or two of each.
	late := 0
	for n := range 10 {
		others := 0
		for takeMessage(t, q).Tenant() != "quiet" {
			others++
		}
		if others > 7 {
			late++
			t.Logf("message %d of the quiet tenant came after %d of the other two", n+1, others)
		}
		if others > 400 || late > 2 {
			t.Fatalf("%d messages of the quiet tenant came late, the last after %d of the other two", late, others)
		}
	}
	seen := map[string]int{}
	for range 200 {
		seen[takeMessage(t, q).Tenant()]++
	}
	if seen["evil"] < 80 || seen["loud"] < 80 {
		t.Errorf("of 200 messages the loud tenants had %v", seen)
	}
}

// A request that waits for a message of one source does not block requests to others. Such a request is open
// for five seconds: with such a pause every few rounds this test would not end.
func TestNoSourceWaitsForAnother(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{}, "one", "two", "three")
	js := jet(t, nc)
	q := submissionsOf(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for round := range 1500 {
		taken := make(chan error, 1)
		go func() { // waits, so that each source has an open request
			m, err := q.Next(ctx)
			if err == nil {
				err = m.Ack()
			}
			taken <- err
		}()
		tenant := []string{"one", "two", "three"}[round%3]
		for range 3 {
			if _, err := js.Publish(ctx, "turnpike.t."+tenant+".submit.a", nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-taken; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for n := range 2 {
			m, err := q.Next(ctx)
			if err != nil {
				t.Fatalf("round %d, message %d: %v", round, n, err)
			}
			if err := m.Ack(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The dead letters and events of one tenant evict none of another's.
func TestTenantsHaveSharesOfTheirOwn(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{EventFeed: true, Limits: natsbus.Limits{Submit: mib, Control: mib, Dead: mib, Events: mib}}, "evil", "acme")
	run, large := newRun(), strings.Repeat("x", 300<<10)
	for _, tenant := range []string{"acme", state.DefaultTenant} {
		if err := b.DeadLetter(t.Context(), bus.DeadLetter{Tenant: tenant, Kind: bus.DeadSubmission, Cause: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := b.PublishEvents(t.Context(), tenant, run, []bus.Event{{Seq: 1, Data: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(8) {
		if err := b.DeadLetter(t.Context(), bus.DeadLetter{Tenant: "evil", Kind: bus.DeadSubmission, Data: large}); err != nil {
			t.Fatal(err)
		}
		if err := b.PublishEvents(t.Context(), "evil", run, []bus.Event{{Seq: n + 1, Data: []byte(large)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []string{"acme", state.DefaultTenant} {
		letters, err := b.DeadLetters(t.Context(), tenant, 0, 10)
		if err != nil || len(letters) != 1 || letters[0].Cause != "first" {
			t.Errorf("dead letters of %s: %+v, %v; want exactly one", tenant, letters, err)
		}
		if last, err := b.LastEvent(t.Context(), tenant, run); err != nil || last != 1 {
			t.Errorf("last event of %s: %d, %v; want 1", tenant, last, err)
		}
	}
	if letters, err := b.DeadLetters(t.Context(), "evil", 0, 10); err != nil || len(letters) != 3 {
		t.Errorf("evil has %d dead letters, %v; want the last three", len(letters), err)
	}
	js := jet(t, nc)
	refused := 0
	for range 6 {
		if _, err := js.Publish(t.Context(), "turnpike.t.evil.abort."+string(run), []byte(large)); err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("the stream of one tenant's aborts has no limit")
	}
	if err := b.PublishAbort(t.Context(), bus.Abort{Tenant: "acme", Run: run}); err != nil {
		t.Errorf("an abort of another tenant: %v", err)
	}
}

// A dead letter belongs to the tenant of its stream and has the number in it, whatever a client has written there. One
// that is too large for a message is cut, and says so.
func TestDeadLettersAreWhatTheirStreamSays(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{}, "acme", "other")
	large := strings.Repeat("x", int(nc.MaxPayload()))
	if err := b.DeadLetter(t.Context(), bus.DeadLetter{Tenant: "acme", Kind: bus.DeadSubmission, Cause: "why", Data: large}); err != nil {
		t.Fatal(err)
	}
	if _, err := jet(t, nc).Publish(t.Context(), "turnpike.t.acme.dead.high", []byte(`{"tenant":"other","seq":99,"lane":"high","cause":"forged"}`)); err != nil {
		t.Fatal(err)
	}
	letters, err := b.DeadLetters(t.Context(), "acme", 0, 10)
	if err != nil || len(letters) != 2 {
		t.Fatalf("%d dead letters, %v; want 2", len(letters), err)
	}
	if cut := letters[0]; !cut.Cut || len(cut.Data) >= len(large) || cut.Data == "" || cut.Cause != fmt.Sprintf("why (cut from %d bytes)", len(large)) || cut.Lane != state.Normal {
		t.Errorf("the large letter has %d bytes in lane %s, cut: %t, and the cause %q", len(cut.Data), cut.Lane, cut.Cut, cut.Cause)
	}
	if forged := letters[1]; forged.Tenant != "acme" || forged.Seq != 2 || letters[0].Seq != 1 {
		t.Errorf("the letters are %d of %q and %d", forged.Seq, forged.Tenant, letters[0].Seq)
	}
	if letters, err := b.DeadLetters(t.Context(), "other", 0, 10); err != nil || len(letters) != 0 {
		t.Errorf("another tenant has %+v, %v", letters, err)
	}
}
