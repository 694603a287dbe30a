package effect

import (
	"context"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// minAnswer is the minimum memory that a call reserves: each call needs some besides its result.
	minAnswer = 64 << 10

	// MaxTurnAnswers bounds the bytes of all results of a turn. Results beyond it become errors.
	MaxTurnAnswers = 32 << 20
)

// maxResult returns the maximum bytes of a tool's result; spec is nil if the agent does not have
// the tool.
func (ts *tools) maxResult(spec *agent.CompiledTool) int {
	limit := ts.cfg.Output
	if spec != nil && spec.MaxResult > 0 {
		limit = min(spec.MaxResult, ts.cfg.MaxResult)
	}
	return limit
}

// reserve splits the batches of a turn's calls so that the largest results that the calls of a batch may have, without
// images and files, fit together into the memory for one batch: MaxTurnAnswers or a tenant's share of the budget,
// whichever is less, but at least the largest result. It reserves memory for the results of all calls or, if that is
// less, of two such batches. If the memory is not free, reserve journals the response, and then waits. The error is
// that of the journal, or the cause that ended ctx.
func (ts *tools) reserve(ctx context.Context, t *Turn, a *agent.Agent, calls []state.OpenCall, batches [][]int) ([][]int, error) {
	// A turn that makes calls a second time returns its memory first: a turn must not wait while
	// it holds some.
	t.answers.Release()
	sum, largest := int64(0), int64(0)
	sizes := make([]int64, len(calls))
	for i, c := range calls {
		sizes[i] = int64(max(ts.maxResult(a.Tool(c.Name)), minAnswer))
		sum += sizes[i]
		largest = max(largest, sizes[i])
	}
	most := max(largest, min(ts.cfg.Answers.Share(), MaxTurnAnswers))
	var err error
	// Two times: the answers of earlier batches, and those of the next one.
	t.answers, err = ts.cfg.Answers.Reserve(ctx, t.Run.Tenant, min(sum, 2*most), func() error {
		return t.Journal.Response(ctx, t.Run.Log) // before the wait, during which the worker may die
	})
	if err != nil {
		return nil, err
	}
	t.pending = sum
	var split [][]int
	for _, batch := range batches {
		left := int64(0)
		for _, i := range batch {
			if left -= sizes[i]; left < 0 {
				split = append(split, nil)
				left = most - sizes[i]
			}
			last := len(split) - 1
			split[last] = append(split[last], i)
		}
	}
	return split, nil
}

// keep adds a result to those of the turn. If they exceed MaxTurnAnswers together, it replaces the new one with an
// error result. It returns memory that neither these results nor the pending calls can need to the budget.
func (ts *tools) keep(t *Turn, results []loop.ToolResult, r loop.ToolResult, spec *agent.CompiledTool) []loop.ToolResult {
	before, size := BytesOf(results...), BytesOf(r)
	if before+size > MaxTurnAnswers && before > 0 {
		r.Content, r.Images, r.Files, r.IsError = fmt.Sprintf("Tool %q was called, but its result of %d bytes does not fit: the results before it have %d, and all results of a turn may have %d in total. Request less data at once", r.Name, size, before, MaxTurnAnswers), nil, nil, true
	}
	t.pending -= int64(max(ts.maxResult(spec), minAnswer))
	t.answers.Shrink(int64(before+BytesOf(r)) + t.pending)
	return append(results, r)
}

// BytesOf returns the bytes of results together, including images and inline files.
func BytesOf(results ...loop.ToolResult) int {
	n := 0
	for _, r := range results {
		n += len(r.Content)
		for _, i := range r.Images {
			n += len(i.Data)
		}
		for _, f := range r.Files {
			n += len(f.Data) + len(f.URL)
		}
	}
	return n
}
