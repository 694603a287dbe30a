package natsstore_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The record of a batch stays while a run of the batch is left, and expires after the last one. With an earlier
// expiry the batch would count its deleted runs as lost.
func TestRecordOfADeletedBatch(t *testing.T) {
	t.Parallel()
	nc, prefix := testbed.NATS(t), prefix()
	s := open(t, nc, prefix)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	first := newRun(t)
	subject := prefix + ".state.batch." + string(first.ID)
	for i := range 2 {
		run := first
		run.ID, run.Batch = first.ID.Plus(i), &state.Batch{Index: i, Size: 2, MaxParallel: 2}
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		turn(t, s, run.ID, 1, true)
	}
	stream, err := js.StreamNameBySubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", state.DeletedBatchLifetime.String()} {
		if err := s.Delete(t.Context(), first.ID.Plus(i)); err != nil {
			t.Fatal(err)
		}
		m, err := runs.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		if ttl := m.Header.Get(nats.MsgTTLHdr); ttl != want {
			t.Errorf("after %d deletions the record expires in %q, want %q", i+1, ttl, want)
		}
	}
}
