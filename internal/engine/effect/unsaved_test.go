package effect_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// unwritten is a journal whose writes do not return yet, except that of the start marks.
type unwritten struct{ effect.Journal }

func (unwritten) Starts(context.Context, []state.Entry, state.Record) error { return nil }
func (unwritten) Hold([]loop.ToolResult)                                    {}

// counting is a model that counts its calls.
type counting struct {
	model.Provider

	calls *atomic.Int64
}

func (c counting) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	c.calls.Add(1)
	return c.Provider.Generate(ctx, r, onDelta)
}

// At a worker's death, few responses and results are missing in the store, however many turns are in flight:
// those calls would be repeated.
func TestFewOutcomesAreUnsaved(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"responses": 128, "results": 64} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			var models, tools atomic.Int64
			s.model = counting{s.model, &models}
			s.tools["read"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				tools.Add(1)
				return tool.Result{Content: "1"}, nil
			})
			s.open(agent.Definition{Tools: []agent.Tool{{Name: "read", Idempotent: true}}}, calls("read", "c1"))
			e, made := s.begin(), &models
			if name == "results" {
				e, made = loop.RunTools{Calls: []state.OpenCall{{ID: "c1", Name: "read", Arguments: `{}`}}}, &tools
			}
			ctx, abort := context.WithCancel(s.ctx)
			saved := make(chan struct{})
			var aborted atomic.Int64
			for range 300 {
				go func() {
					one := effect.Turn{Run: &s.s, Attempt: 1, Journal: unwritten{}, Lease: s.turn.Lease}
					defer one.End()
					ev, err := s.Do(ctx, &one, e)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if _, ok := ev.(loop.Aborted); ok {
						aborted.Add(1)
					}
					<-saved
					s.Recorded(s.ctx, &one, nil)
				}()
			}
			await := func(want int64) {
				t.Helper()
				time.Sleep(time.Minute)
				if n := made.Load(); n != want {
					t.Fatalf("%s: %d calls were made, want %d", name, n, want)
				}
			}
			await(want)
			for range want {
				saved <- struct{}{}
			}
			await(2 * want)
			abort()
			await(2 * want)
			if n := aborted.Load(); n != 300-2*want {
				t.Errorf("%s: %d turns were cut short, want %d", name, n, 300-2*want)
			}
			close(saved)
		})
	}
}
