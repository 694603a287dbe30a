package eval_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/eval"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// batches is a gateway whose runs complete at once, those of a batch in reverse. Their ids name their case and repeat.
type batches struct {
	*api.Client

	ids   map[string][]string // of the runs, by the key of their batch
	sizes []int
}

func (b *batches) SubmitBatch(_ context.Context, r api.BatchRequest, key string) (api.BatchAccepted, error) {
	if b.ids[key] != nil {
		return api.BatchAccepted{}, &api.Problem{Code: api.CodeIdempotencyConflict}
	}
	for _, run := range r.Runs {
		b.ids[key] = append(b.ids[key], runOf(run.Metadata["eval_case"], run.Metadata["eval_repeat"]))
	}
	b.sizes = append(b.sizes, len(r.Runs))
	return api.BatchAccepted{BatchID: key, RunIDs: b.ids[key]}, nil
}

func (b *batches) WaitBatch(_ context.Context, id string, each func(api.Batch, api.Run)) (api.Batch, error) {
	for _, run := range slices.Backward(b.ids[id]) {
		each(api.Batch{}, api.Run{ID: run, Status: string(state.Completed)})
	}
	return api.Batch{}, nil
}

func runOf(number, repeat any) string {
	return fmt.Sprintf("run of case %v, repeat %v", number, repeat)
}

// An evaluation of many runs submits several batches, each with its key, and each run counts for its case.
func TestManyRuns(t *testing.T) {
	t.Parallel()
	const runs = 450
	b := &batches{ids: map[string][]string{}}
	file := parse(t, `
cases:
  - {name: one, input: a, expect: [{cel: turns == 0}]}
  - {name: two, input: b, expect: [{cel: turns == 0}]}
  - {name: three, input: c, expect: [{cel: turns == 0}]}
`)
	var progress []int
	report, err := eval.Run(t.Context(), b, file, eval.Options{
		ID: "e1", Agents: []eval.Version{{Agent: "a", Version: 1}}, Repeat: runs / 3,
		Progress: func(ended, all int) {
			if progress = append(progress, ended); ended != len(progress) || all != runs {
				t.Errorf("progress %d: %d of %d", len(progress), ended, all)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{200, 200, 50}; !slices.Equal(b.sizes, want) || len(progress) != runs || len(report.Results) != runs {
		t.Errorf("batches of %v runs, %d were reported, %d results", b.sizes, len(progress), len(report.Results))
	}
	numbers := map[string]int{"one": 1, "two": 2, "three": 3}
	for i, r := range report.Results {
		if want := runOf(numbers[r.Case], r.Repeat); r.RunID != want || len(r.Failures) > 0 {
			t.Errorf("result %d of case %s, repeat %d, has %s %q", i, r.Case, r.Repeat, r.RunID, r.Failures)
		}
	}
}
