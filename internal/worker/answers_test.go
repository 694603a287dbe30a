package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// With memory for one tool result, calls of all turns run one at a time, and all runs end.
func TestMemoryForOneAnswer(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var now, most, made atomic.Int64
	s.tools["large"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		made.Add(1)
		if c.MaxResult != 100<<10 {
			t.Errorf("the result limit of a call is %d bytes, want %d", c.MaxResult, 100<<10)
		}
		return tool.Result{Content: strings.Repeat("x", 100<<10)}, nil
	})
	cfg := s.config()
	cfg.AnswerMemory = 100 << 10
	tools := []agent.Tool{{Name: "large", MaxResult: 100 << 10}}
	var runs []state.RunID
	for range 5 {
		var calls []model.ScriptedCall
		for i := range 3 {
			calls = append(calls, model.ScriptedCall{ID: fmt.Sprint("c", i), Name: "large"})
		}
		runs = append(runs, s.submit(state.Limits{}, tools, model.Scripted{ToolCalls: calls}, model.Scripted{Text: "done"}))
	}
	second := s.config()
	second.AnswerMemory = cfg.AnswerMemory
	s.work(cfg)
	s.work(second)
	for _, id := range runs {
		s.awaitReason(id, state.EndCompleted)
	}
	if made.Load() != 15 || most.Load() > 2 {
		t.Errorf("%d calls, at most %d at once on two workers; want 15 and at most 2", made.Load(), most.Load())
	}
}

// A definition that was saved before the limit existed runs with the limit.
func TestMaxResultIsCapped(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	limit := make(chan int, 1)
	s.tools["large"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		limit <- c.MaxResult
		return tool.Result{Content: strings.Repeat("x", 10_000)}, nil
	})
	cfg := s.config()
	cfg.MaxResult = 5000
	s.work(cfg)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "large", MaxResult: 100_000_000}}, model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "c", Name: "large"}}}, model.Scripted{Text: "done"})
	s.awaitReason(id, state.EndCompleted)
	if got := <-limit; got != 5000 {
		t.Errorf("the result limit of a call is %d bytes, want 5000", got)
	}
	if got := s.lastResult(id); len(got) > 5100 {
		t.Errorf("the result has %d bytes, want 5000", len(got))
	}
}
