package natsstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The stream of runs has no maximum age. So a document that is replaced leaves one message, and records of removed data
// have a lifetime of their own.
func TestStreamKeepsNothingOld(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	kept, removed := state.TimerID{Tenant: "acme", Kind: "k", Name: "kept"}, state.TimerID{Tenant: "acme", Kind: "k", Name: "removed"}
	for i := range 3 {
		data := json.RawMessage(fmt.Sprint(i))
		if err := s.PutDocument(t.Context(), state.KeyDocument, "put", data); err != nil {
			t.Fatal(err)
		}
		was := json.RawMessage(nil)
		if i > 0 {
			was = json.RawMessage(fmt.Sprint(i - 1))
		}
		if err := s.ReplaceDocument(t.Context(), state.KeyDocument, "replaced", was, data); err != nil {
			t.Fatal(err)
		}
		for _, id := range []state.TimerID{kept, removed} {
			if err := s.PutTimer(t.Context(), id, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		endWithFigures(t, s)
		if err := s.FoldFigures(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutTimer(t.Context(), removed, time.Time{}); err != nil {
		t.Fatal(err)
	}
	gone := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: gone, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	turn(t, s, gone.ID, 1, true)
	if err := s.Delete(t.Context(), gone.ID); err != nil {
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
	lives := map[string]bool{} // kinds of messages that expire
	for _, kind := range []string{"document", "timer", "figures", "run"} {
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("p.state."+kind+".>"))
		if err != nil {
			t.Fatal(err)
		}
		for subject, n := range info.State.Subjects {
			if kind != "run" && n != 1 {
				t.Errorf("%s has %d messages, want the latest", subject, n)
			}
			m, err := stream.GetLastMsgForSubject(t.Context(), subject)
			if err != nil {
				t.Fatal(err)
			}
			if ttl := m.Header.Get("Nats-TTL"); ttl != "" {
				kind := strings.Join(strings.Split(subject, ".")[2:4], ".")
				if strings.HasPrefix(kind, "run.") {
					kind = "run"
				}
				lives[kind] = true
			}
		}
	}
	if got, want := fmt.Sprint(lives), "map[figures.hour:true run:true timer.k:true]"; got != want {
		t.Errorf("messages with a lifetime: %s, want %s: the sums of an hour, a deleted run and a removed timer", got, want)
	}
}

// endWithFigures creates a run and ends it with figures.
func endWithFigures(t *testing.T, s state.Store) {
	t.Helper()
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "t" + string(run.ID), Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	figures := []state.FigureSeries{{SeriesKey: state.SeriesKey{Agent: "a", Model: "m"}, Figures: state.Figures{state.CounterRuns: 1}}}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c" + string(run.ID), State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour, Figures: figures}); err != nil {
		t.Fatal(err)
	}
}

// A process that dies after it has added figures to the sums, and before it has recorded how far it has read, makes the
// next fold read them again. Each counts once.
func TestFiguresOfAnInterruptedFold(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	endWithFigures(t, s)
	runs := func() (n int64) {
		t.Helper()
		hours, err := s.Figures(t.Context(), state.DefaultTenant, time.Now().Add(-time.Hour), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hours {
			for _, series := range h.Series {
				n += series.Figures[state.CounterRuns]
			}
		}
		return n
	}
	if n := runs(); n != 1 {
		t.Fatalf("the figures have %d runs, want 1", n)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "P_STATE")
	if err == nil {
		err = stream.Purge(t.Context(), jetstream.WithPurgeSubject("p.state.figures.cursor"))
	}
	if err != nil {
		t.Fatal(err)
	}
	endWithFigures(t, s)
	if n := runs(); n != 2 {
		t.Errorf("the figures have %d runs, want 2", n)
	}
}

// A run that another process has deleted leaves the lists and counts of this one.
func TestDeletionElsewhere(t *testing.T) {
	t.Parallel()
	nc, name := testbed.NATS(t), prefix()
	s, elsewhere := open(t, nc, name), open(t, nc, name)
	run := newRun(t)
	if _, err := elsewhere.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	turn(t, elsewhere, run.ID, 1, true)
	listed := func(want int) func() bool {
		return func() bool {
			page, err := s.List(t.Context(), state.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			counts, err := s.Counts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Runs) == want && counts[state.Completed] == int64(want)
		}
	}
	await(t, "the run is listed", listed(1))
	if err := elsewhere.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	await(t, "the run is not listed any more", listed(0))
}
