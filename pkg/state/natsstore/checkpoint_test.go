package natsstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A process that has not read a run before gets its log from the committed checkpoint on, wherever in the stream the
// checkpoint was journaled.
func TestCheckpointForANewProcess(t *testing.T) {
	t.Parallel()
	const (
		entry      = iota // is journaled
		checkpoint        // is journaled
		renewal           // a message without entries
	)
	for name, c := range map[string]struct {
		steps     []int
		committed bool // a checkpoint is in the commit
		want      int64
	}{
		"journaled":               {[]int{checkpoint}, false, 4},
		"journaled before others": {[]int{checkpoint, entry, renewal, entry}, false, 4},
		"journaled after others":  {[]int{entry, renewal, checkpoint, renewal}, false, 5},
		"journaled twice":         {[]int{checkpoint, entry, checkpoint, entry}, false, 6},
		"in the commit":           {nil, true, 4},
		"in the commit, after one that was journaled": {[]int{checkpoint, entry}, true, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, p := testbed.NATS(t), prefix()
			s := open(t, nc, p)
			run := newRun(t)
			if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
			turn(t, s, run.ID, 1, false)
			turn(t, s, run.ID, 2, false)
			claim := func(s state.Store, version int64) *state.Claim {
				t.Helper()
				c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
				if err != nil || c.Outcome != state.Claimed {
					t.Fatal(c.Outcome, err)
				}
				return c
			}
			held := claim(s, 3)
			next := *held.State
			for _, step := range c.steps {
				if step == renewal {
					if _, err := s.Renew(t.Context(), held.Lease, time.Hour, time.Hour); err != nil {
						t.Fatal(err)
					}
					continue
				}
				e := state.Entry{Type: state.EntryProgress, At: state.At(time.Now())}
				if step == checkpoint {
					e = state.Entry{Type: state.EntryCheckpoint, Checkpoint: state.NewCheckpoint(&next)}
				}
				from := next.LogLen()
				next = next.Append(e)
				if _, err := s.Record(t.Context(), held.Lease, state.Record{From: from, Entries: next.Log[len(next.Log)-1:]}); err != nil {
					t.Fatal(err)
				}
			}
			from := next.LogLen()
			if c.committed {
				next = next.Append(state.Entry{Type: state.EntryCheckpoint, Checkpoint: state.NewCheckpoint(&next)})
			}
			next, err := next.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), held.Lease, state.Commit{ID: "t", State: &next, From: from, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
			log, err := open(t, nc, p).Log(t.Context(), run.ID, c.want-1, 0)
			if err != nil || len(log) == 0 || log[0].Seq != c.want || log[0].Type != state.EntryCheckpoint || state.LogLen(log) != next.LogLen() {
				t.Errorf("the log of %d entries from %d is %+v, %v", next.LogLen(), c.want, log, err)
			}
			turn(t, s, run.ID, 4, false) // it leaves the checkpoint where it is
			got := claim(open(t, nc, p), 5).State
			if got.Checkpoint != c.want || len(got.Log) == 0 || got.Log[0].Seq != c.want || got.LogLen() != next.LogLen()+1 {
				t.Errorf("a claim has the checkpoint %d and the log %+v; want that from %d to %d", got.Checkpoint, got.Log, c.want, next.LogLen()+1)
			}
		})
	}
}
