package turn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// again publishes the run's turn once more, for another attempt.
func (s *stage) again(id string) {
	s.t.Helper()
	if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: s.id, Version: s.record().Version, Priority: state.Normal}, id); err != nil {
		s.t.Fatal(err)
	}
}

// A turn that was taken over waits for the results of its first worker, unless the run was aborted: then nobody needs
// them.
func TestAbortEndsTheWaitForLateResults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		aborted bool
		want    string
	}{
		"alive":   {false, "claim release nak"},
		"aborted": {true, "claim commit ack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.late = time.Minute
				release := make(chan struct{})
				s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					<-release
					return tool.Result{Content: "PAID"}, nil
				})
				s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
				done := make(chan struct{})
				go func() { defer close(done); s.next(t.Context(), "w1") }()
				synctest.Wait()
				if _, err := s.store.Evict(t.Context(), "w1", 10, time.Hour); err != nil {
					t.Fatal(err)
				}
				if tt.aborted {
					if _, err := s.store.Abort(t.Context(), s.id, state.Abort{Reason: "enough"}, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				s.again("again")
				before := len(s.steps)
				s.next(t.Context(), "w2")
				if got := strings.Join(s.steps[before:], " "); got != tt.want {
					t.Errorf("steps: %s\nwant:  %s", got, tt.want)
				}
				close(release)
				<-done
			})
		})
	}
}

// pausing is a model during whose first calls the worker loses its lease, because it is paused.
type pausing struct {
	model.Provider

	s    *stage
	left int
}

func (p *pausing) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if p.left > 0 {
		p.left--
		if _, err := p.s.store.Evict(ctx, p.s.record().Owner, 10, time.Hour); err != nil {
			return model.Response{}, err
		}
	}
	return p.Provider.Generate(ctx, r, onDelta)
}

// A turn whose workers were only paused, however often, is not poisoned.
func TestPausesDoNotPoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.model = &pausing{s.model, s, 8}
		s.submit(agent.Definition{}, model.Scripted{Text: "end"})
		for i := range 8 {
			s.next(t.Context(), fmt.Sprint("w", i))
			if r := s.record(); r.Paused != i+1 {
				t.Fatalf("%d pauses after %d", r.Paused, i+1)
			}
			s.again(fmt.Sprint("again", i))
		}
		s.next(t.Context(), "last")
		if r := s.record(); r.Status != state.Completed {
			t.Errorf("the run is %s, want it completed", r.Status)
		}
	})
}

// A turn whose worker was only paused passes a full quarantine. One whose worker died does not.
func TestPausedTurnPassesTheQuarantine(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"paused": "claim commit ack", "died": "claim nak"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.model = &pausing{s.model, s, 1}
				s.submit(agent.Definition{}, model.Scripted{Text: "end"})
				if name == "paused" {
					s.next(t.Context(), "w1")
				} else {
					s.claimAndDie(t)
				}
				s.again("again")
				s.model = s.model.(*pausing).Provider //nolint:forcetypeassert // as above
				s.quarantine = admission.NewQuarantine(4, 5)
				if _, ok := s.quarantine.Admit(4, false); !ok {
					t.Fatal("the quarantine is full from the start")
				}
				before := len(s.steps)
				s.next(t.Context(), "w2")
				if got := strings.Join(s.steps[before:], " "); got != want {
					t.Errorf("steps: %s\nwant:  %s", got, want)
				}
			})
		})
	}
}

// claimAndDie claims the turn for a worker that is never heard of again.
func (s *stage) claimAndDie(t *testing.T) {
	t.Helper()
	d, err := s.queue.Next(t.Context())
	if err == nil {
		err = d.Ack()
	}
	if err == nil {
		_, err = s.store.Claim(t.Context(), state.ClaimRequest{Run: s.id, Version: 1, Token: "dead", Worker: "dead", Lease: time.Minute, RedeliveryDelay: time.Hour})
	}
	if err == nil {
		_, err = s.store.Evict(t.Context(), "dead", 10, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
}
