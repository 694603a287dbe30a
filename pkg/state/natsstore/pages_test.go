package natsstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A process notes where in the stream it has read a page of a log, so that the next page continues there. It drops these
// notes with the stream to which they belong.
func TestPagesOfAnOlderStream(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]bool{
		"it reads the run itself":        true, // and does not follow the stream
		"it reads the whole index again": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := testbed.NATS(t)
			s := open(t, nc, "p")
			run, second := newRun(t), newRun(t)
			create := func(s state.Store, run state.State) {
				t.Helper()
				if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			checkpoint := func(s state.Store, version int64, renewals int) {
				t.Helper()
				c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
				if err != nil || c.Outcome != state.Claimed {
					t.Fatal(c.Outcome, err)
				}
				for range renewals { // messages without entries
					if _, err := s.Renew(t.Context(), c.Lease, time.Hour, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				next, err := c.State.Append(state.Entry{Type: state.EntryCheckpoint, Checkpoint: state.NewCheckpoint(c.State)}).Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "t", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			create(s, newRun(t))
			create(s, second)
			create(s, run)
			checkpoint(s, 1, 12)
			checkpoint(s, 2, 0)
			if page, err := s.LogPage(t.Context(), run.ID, 0, 2, 0); err != nil || len(page.Entries) != 2 {
				t.Fatalf("a page of %d entries, %v", len(page.Entries), err)
			}
			if closed {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			replaceStream(t, nc, "P_STATE")
			other := open(t, nc, "p")
			create(other, second)
			create(other, run)
			read := second.ID
			if closed {
				read = run.ID
			}
			if _, err := s.Load(t.Context(), read); err != nil { // it is older than the process knew
				t.Fatal(err)
			}
			await(t, "the index has what the stream has", func() bool {
				page, err := s.List(t.Context(), state.Filter{})
				return closed || err == nil && len(page.Runs) == 2
			})
			for v := range int64(8) {
				turn(t, other, run.ID, 1+v, false)
			}
			checkpoint(other, 9, 0)
			want, err := other.Log(t.Context(), run.ID, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Log(t.Context(), run.ID, 1, 0)
			if err != nil || len(got) != len(want) || got[0].Seq != 2 {
				t.Errorf("%d entries, %v; want the %d of the new stream", len(got), err, len(want))
			}
		})
	}
}
