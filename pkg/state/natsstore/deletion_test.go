package natsstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A process that dies right after it has marked a run as deleted leaves the run's earlier messages and the list
// of its descendants. The next call of Delete removes them; otherwise the run would be back when its marker
// expires.
func TestDeletionAfterACrash(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s, elsewhere := open(t, nc, "p"), open(t, nc, "q")
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{run.ID.Plus(1)}, 9); err != nil {
		t.Fatal(err)
	}
	turn(t, s, run.ID, 1, true)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// The marker is the one that another store has made for the same run.
	if err := elsewhere.PreventCreation(t.Context(), run.Tenant, run.ID); err != nil {
		t.Fatal(err)
	}
	other, err := js.Stream(t.Context(), "Q_STATE")
	if err != nil {
		t.Fatal(err)
	}
	marker, err := other.GetLastMsgForSubject(t.Context(), "q.state.run."+string(run.ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "p.state.run."+string(run.ID), marker.Data, jetstream.WithMsgTTL(state.MarkerLifetime)); err != nil {
		t.Fatal(err)
	}

	if err := s.Delete(t.Context(), run.ID); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("Delete = %v, want %v", err, state.ErrDeleted)
	}
	stream, err := js.Stream(t.Context(), "P_STATE")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("p.state.>"))
	if err != nil {
		t.Fatal(err)
	}
	delete(info.State.Subjects, "p.state.figures.cursor")
	if left := info.State.Subjects; len(left) != 1 || left["p.state.run."+string(run.ID)] != 1 {
		t.Errorf("the stream has %v, want the marker only", left)
	}
	if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("Load = %v, want %v", err, state.ErrDeleted)
	}
}

// A deletion that was interrupted after it removed the key of its run leaves the key to a newer run that has taken it.
func TestDeletionLeavesTheKeyOfANewerRun(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	submit := func() state.Created {
		t.Helper()
		made, err := s.Create(t.Context(), state.NewRun{State: newRun(t), Key: "k", RedeliveryDelay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	old := submit().State.ID
	turn(t, s, old, 1, true)
	if _, err := s.Seal(t.Context(), old, "token"); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "P_STATE")
	if err == nil {
		err = stream.Purge(t.Context(), jetstream.WithPurgeSubject("p.state.idem.>")) // as the deletion does
	}
	if err != nil {
		t.Fatal(err)
	}
	owner := submit()
	if owner.Existing {
		t.Fatalf("the key has still the run %s", owner.State.ID)
	}
	if err := s.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if again := submit(); again.State.ID != owner.State.ID || !again.Existing {
		t.Errorf("one key, two runs: %s and %s", owner.State.ID, again.State.ID)
	}
}

// A process that has found a run deleted answers nothing of it from its memory, also if its feed has not reported the
// deletion, and a reader of the log returns late.
func TestLogAfterDeletionElsewhere(t *testing.T) {
	t.Parallel()
	nc, name := testbed.NATS(t), prefix()
	s, elsewhere := open(t, nc, name), open(t, nc, name)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	turn(t, s, run.ID, 1, true)
	log, err := s.Log(t.Context(), run.ID, 0, 1)
	if err != nil || len(log) != 1 {
		t.Fatalf("Log = %d entries, %v", len(log), err)
	}
	s.StopFeed()
	if err := elsewhere.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), run.ID); !errors.Is(err, state.ErrDeleted) {
		t.Fatalf("Load = %v", err)
	}
	s.HoldLog(run.ID, log)
	if log, err := s.Log(t.Context(), run.ID, 0, 1); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("Log = %d entries, %v, want %v", len(log), err, state.ErrDeleted)
	}
	if n := len(s.LogBytes()); n != 0 {
		t.Errorf("%d logs are held", n)
	}
}

// The server counts what each consumer of the stream has left to read whenever something is purged. A fold of the
// hourly figures reads with a consumer and deletes it, and deletions at the same time share one fold.
func TestDeletionsLeaveNoConsumers(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	ids := make([]state.RunID, 20)
	for i := range ids {
		run := newRun(t)
		ids[i] = run.ID
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		turn(t, s, run.ID, 1, true)
	}
	created := 0
	sub, err := nc.Subscribe("$JS.API.CONSUMER.CREATE.>", func(*nats.Msg) { created++ })
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for _, id := range ids {
		group.Go(func() error { return s.Delete(t.Context(), id) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Figures(t.Context(), state.DefaultTenant, time.Now().Add(-time.Hour), time.Now()); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "P_STATE")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != 1 {
		t.Errorf("the stream has %d consumers, want the one of the index", n)
	}
	if err := sub.Drain(); err != nil {
		t.Fatal(err)
	}
	<-sub.StatusChanged(nats.SubscriptionClosed)
	if created > len(ids)/2 {
		t.Errorf("%d deletions created %d consumers", len(ids), created)
	}
}
