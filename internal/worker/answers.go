package worker

import (
	"context"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// minAnswer is the least memory that a call reserves: each takes some besides its result.
	minAnswer = 64 << 10

	// turnAnswers bounds the results of a turn together. The next ones become errors.
	turnAnswers = 32 << 20
)

// maxResult returns the bytes that a result of a tool may have; spec is nil if the agent does
// not have it.
func (w *Worker) maxResult(spec *agent.CompiledTool) int {
	limit := w.cfg.ToolOutput
	if spec != nil && spec.MaxResult > 0 {
		limit = min(spec.MaxResult, w.cfg.MaxResult)
	}
	return limit
}

// reserveAnswers reserves memory for the answers of all calls of a turn at once, and returns
// the batches, split so that the answers of each fit into the reservation.
func (t *turn) reserveAnswers(ctx context.Context, a *agent.Agent, calls []state.OpenCall, batches [][]int) ([][]int, error) {
	// A turn that makes calls a second time returns its memory first: it must not wait while
	// it holds some.
	t.answers.Release()
	sum, largest := int64(0), int64(0)
	sizes := make([]int64, len(calls))
	for i, c := range calls {
		sizes[i] = int64(max(t.w.maxResult(a.Tool(c.Name)), minAnswer))
		sum += sizes[i]
		largest = max(largest, sizes[i])
	}
	most := max(largest, min(t.w.answers.Share(), turnAnswers))
	var err error
	// Two times: what earlier batches have answered, and what the next one may answer.
	t.answers, err = t.w.answers.Reserve(ctx, t.s.Tenant, min(sum, 2*most), func() error {
		return t.journal.Response(ctx, t.s.Log) // the response is kept if the worker dies meanwhile
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

// keepResult leaves a call as much of the reservation as its result has. A result that has no
// place beside the others of the turn becomes an error.
func (t *turn) keepResult(r *loop.ToolResult, spec *agent.CompiledTool) {
	before := bytesOf(t.journal.results)
	if size := bytesOf([]loop.ToolResult{*r}); before+size > turnAnswers && before > 0 {
		r.Content, r.Images, r.IsError = fmt.Sprintf("Tool %q was called, but its result of %d bytes does not fit: the results of a turn may have %d bytes together. Ask for less at once", r.Name, size, turnAnswers), nil, true
	}
	t.pending -= int64(max(t.w.maxResult(spec), minAnswer))
	t.answers.Shrink(int64(before+bytesOf([]loop.ToolResult{*r})) + t.pending)
}
