package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A hook that outlives its turn ends with the shutdown grace: Run does not wait for the hook's own timeout.
func TestHookEndsWithTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		asked, ended := make(chan struct{}), make(chan error, 1)
		var stopping time.Time
		t.Cleanup(func() { // after the worker has been stopped
			if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(stopping) >= time.Minute {
				t.Errorf("the hook ended with %v after %s", err, time.Since(stopping))
			}
		})
		hooks := agent.Hooks{StopFailure: named("slow")}
		hooks.StopFailure[0].Timeout = model.Duration(time.Minute)
		id := s.watchedBy(hooks, map[string]hook.Func{"slow": func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
			close(asked)
			<-ctx.Done()
			ended <- ctx.Err()
			return hook.Answer{}, ctx.Err()
		}}, model.Scripted{Error: model.Auth})
		s.awaitReason(id, state.EndModelError)
		<-asked
		stopping = time.Now()
	})
}

// wreck is a kind of tool that panics when a turn starts.
type wreck struct{ services }

func (wreck) Describe(context.Context, []tool.Bound) map[string]tool.Description { panic("ouch") }

// A kind that panics while its tools are listed fails the run. If the panic escaped into the turn, it would
// recur at each attempt before the loop could end the run.
func TestKindPanics(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	cfg.Kinds["nats"] = wreck{}
	s.work(cfg)
	s.awaitReason(s.submit(state.Limits{}, []agent.Tool{{Name: "weather", Kind: "nats"}}, model.Scripted{Text: "hi"}), state.EndCompleted)
}

// fewQueues is a bus that cannot open all queues.
type fewQueues struct {
	bus.Bus

	left   int
	opened []*closedQueue
}

type closedQueue struct {
	bus.TurnQueue

	asked, closed bool
}

func (q *closedQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	q.asked = true
	<-ctx.Done()
	return nil, ctx.Err()
}

func (q *closedQueue) Close() error {
	q.closed = true
	return q.TurnQueue.Close()
}

func (b *fewQueues) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	if b.left--; b.left < 0 {
		return nil, errors.New("no room for a consumer")
	}
	q, err := b.Bus.Turns(ctx, key)
	if err != nil {
		return nil, err
	}
	b.opened = append(b.opened, &closedQueue{TurnQueue: q})
	return b.opened[len(b.opened)-1], nil
}

// A worker that cannot open all its queues takes no turn and returns the error.
func TestNoTurnWithoutAllQueues(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b := &fewQueues{Bus: s.bus, left: 2}
	w, err := worker.New(s.store, b, s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("Run = %v", err)
	}
	for _, q := range b.opened {
		if q.asked || !q.closed {
			t.Errorf("a queue was asked for turns: %t, and closed: %t", q.asked, q.closed)
		}
	}
}

// brittle is a bus that panics a given number of times when a reply is sent.
type brittle struct {
	bus.Bus

	left atomic.Int64
}

func (b *brittle) Reply(ctx context.Context, tenant, subject string, data []byte) error {
	if b.left.Add(-1) >= 0 {
		panic("ouch")
	}
	return b.Bus.Reply(ctx, tenant, subject, data)
}

// A panic while a run is finalized does not end the worker: the run is due again.
func TestSweepSurvives(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b := &brittle{Bus: s.bus}
	b.left.Store(3)
	s.workWith(s.store, b, s.config())
	s.submit(state.Limits{}, nil, model.Scripted{Text: "done"})
	for len(s.bus.Replies("reply.here")) == 0 {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("no reply")
		}
	}
}
