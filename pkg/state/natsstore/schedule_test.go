package natsstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// indexed returns an index of runs that wait until tomorrow.
func indexed(runs int) *Store {
	s := Indexed(nil)
	s.clock.local = time.Now
	for n := range runs {
		id := state.RunID(fmt.Sprintf("run_%026d", n))
		rec := record.Record{Header: state.State{ID: id, Format: state.Format}, Status: state.Waiting, Due: state.At(time.Now().Add(24 * time.Hour))}
		s.learn(id, version{rec, uint64(n + 1), 0})
	}
	return s
}

// The schedule finds the same due runs as a scan of all runs, after any changes.
func TestSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		began := time.Unix(1_700_000_000, 0)
		s, now := Indexed(nil), map[state.RunID]record.Record{}
		for n := range rapid.IntRange(1, 200).Draw(t, "changes") {
			id := state.RunID(fmt.Sprint("run_", rapid.IntRange(0, 30).Draw(t, "run")))
			if rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
				s.forget(id)
				delete(now, id)
				continue
			}
			rec := record.Record{
				Header: state.State{ID: id}, Status: rapid.SampledFrom(state.Statuses()).Draw(t, "status"), Owner: rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "owner"),
			}
			if due := rapid.IntRange(0, 20).Draw(t, "due"); due > 0 {
				rec.Due = state.At(began.Add(time.Duration(due) * time.Second))
			}
			s.learn(id, version{rec, uint64(n + 1), 0})
			now[id] = rec
		}
		at := began.Add(time.Duration(rapid.IntRange(0, 21).Draw(t, "at")) * time.Second)
		tried := map[state.RunID]bool{"run_3": true}
		var due []state.RunID
		owners := map[string]bool{}
		for id, rec := range now {
			if !rec.Due.IsZero() && !at.Before(rec.Due.Time) && !tried[id] {
				due = append(due, id)
			}
			if rec.Status == state.Running && rec.Owner != "" {
				owners[rec.Owner] = true
			}
		}
		got, _ := s.schedule.due.until(at, 1000, tried)
		slices.Sort(got)
		slices.Sort(due)
		if !slices.Equal(got, due) {
			t.Fatalf("due are %v, want %v", got, due)
		}
		if few, _ := s.schedule.due.until(at, 3, tried); len(few) != min(3, len(due)) {
			t.Fatalf("%d of %d due runs, want at most 3", len(few), len(due))
		}
		if got, _ := s.Owners(t.Context()); !slices.Equal(got, slices.Sorted(maps.Keys(owners))) {
			t.Fatalf("owners are %v, want %v", got, owners)
		}
	})
}

// A sweep examines due runs, not all runs.
func TestScheduleCost(t *testing.T) {
	t.Parallel()
	s := indexed(manyRuns)
	now := time.Now()
	for n := range 10 {
		id := state.RunID(fmt.Sprintf("run_%026d", 1000*n))
		rec := s.index[id].rec
		rec.Due = state.At(now)
		s.learn(id, version{rec, uint64(manyRuns + n + 1), 0})
	}
	due, looked := s.schedule.due.until(now.Add(time.Second), 512, nil)
	if len(due) != 10 || looked > 21 {
		t.Errorf("%d of %d runs were examined to find %d due ones, want 10", looked, manyRuns, len(due))
	}
}

func BenchmarkSchedule(b *testing.B) {
	s := indexed(manyRuns)
	for name, call := range map[string]func() error{
		"Sweep":  func() error { _, err := s.Sweep(b.Context(), 512, time.Second, nil); return err },
		"Evict":  func() error { _, err := s.Evict(b.Context(), "w", 512, time.Second); return err },
		"Owners": func() error { _, err := s.Owners(b.Context()); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
