package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// failing is a store that cannot load some runs.
type failing struct {
	state.Store

	loads   map[state.RunID]error
	deleted map[int]state.Status // of any batch
}

func (s *failing) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if err := s.loads[id]; err != nil {
		return state.State{}, fmt.Errorf("run %s: %w", id, err)
	}
	return s.Store.Load(ctx, id)
}

func (s *failing) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	if len(s.deleted) > 0 {
		return state.DeletedBatch{Deleted: s.deleted}, nil
	}
	return s.Store.DeletedOfBatch(ctx, first)
}

// A run that was deleted, or that a newer build has written, is not lost, and does not hide the lost ones. Any other
// error ends the search.
func TestRunsThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	base := state.FirstIDAt(time.Now())
	s := &failing{Store: memstore.New(memstore.Config{}), loads: map[state.RunID]error{base.Plus(1): state.ErrFormat, base.Plus(2): state.ErrDeleted}}
	named := namedRuns{runs: []state.RunID{base.Plus(1), base.Plus(2)}, all: true}
	if f := lostRuns(t.Context(), named, s); !f.OK {
		t.Errorf("of runs that are not lost: %+v", f)
	}
	named.runs, named.all = append(named.runs, base.Plus(3), base.Plus(3)), false
	f := lostRuns(t.Context(), named, s)
	if want := fmt.Sprintf("the store lacks 1 runs: %s (of a turn message); doctor checked the oldest turn messages, of 4 runs", base.Plus(3)); f.OK || f.Fatal || !strings.HasPrefix(f.Detail, want) {
		t.Errorf("of one lost run: %+v, want %s", f, want)
	}
	for n := range shownLost {
		named.runs = append(named.runs, base.Plus(10+n))
	}
	last := string(named.runs[len(named.runs)-1])
	if f := lostRuns(t.Context(), named, s); !strings.Contains(f.Detail, "lacks 11 runs") || !strings.Contains(f.Detail, ", …; ") || strings.Contains(f.Detail, last) || f.Remedy == "" {
		t.Errorf("of eleven lost runs: %+v", f)
	}
	s.loads[base.Plus(2)] = errors.New("no answer")
	if f := lostRuns(t.Context(), named, s); f.OK || !strings.HasSuffix(f.Detail, ": no answer") || !strings.HasPrefix(f.Remedy, "check that the store answers") {
		t.Errorf("of a store that does not answer: %+v", f)
	}
}

// Runs of which others are created later are not searched at once, and recorded deletions are no losses.
func TestRunsThatMayBeCreatedLater(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		age     time.Duration
		deleted map[int]state.Status
		want    string
	}{
		{"a young parent", newFor - 1, nil, "the store has all"},
		{"a parent", newFor, nil, "lacks 1 runs"},
		{"a parent and a young batch", batchNewFor - 1, nil, "lacks 1 runs"},
		{"a parent and a batch", batchNewFor, nil, "lacks 3 runs"},
		{"a parent and a batch with a deleted run", batchNewFor, map[int]state.Status{0: state.Completed}, "lacks 2 runs"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &failing{Store: memstore.New(memstore.Config{}), deleted: test.deleted}
			at := state.At(time.Now())
			base := state.FirstIDAt(at.Time)
			parent := state.State{ID: base.Plus(1), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}
			parent, err := parent.Move(state.Submitted, state.Entry{At: at})
			if err != nil {
				t.Fatal(err)
			}
			parent.Open = []state.OpenCall{{ID: "c1", Name: "x", Needs: state.NeedChild, Child: base.Plus(2)}}
			parent, err = parent.Move(state.WaitingChild, state.Entry{At: at, Waiting: &state.Wait{Reason: state.WaitingChild, Since: at}})
			if err != nil {
				t.Fatal(err)
			}
			middle := state.State{
				ID: base.Plus(11), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal, CreatedAt: at,
				Batch: &state.Batch{Index: 1, Size: 3, MaxParallel: 3},
			}
			if middle, err = middle.Move(state.Submitted, state.Entry{At: at}); err != nil {
				t.Fatal(err)
			}
			for _, run := range []state.State{parent, middle} {
				if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(test.age) // on the clock of the synctest bubble
			if f := lostRuns(t.Context(), namedRuns{all: true}, s); !strings.Contains(f.Detail, test.want) {
				t.Errorf("%s: %+v, want %s", test.name, f, test.want)
			}
		})
	}
}
