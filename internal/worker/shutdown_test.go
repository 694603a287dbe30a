package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// mute is a store that answers no write of a turn once silent is true.
type mute struct {
	state.Store

	silent atomic.Bool
}

func (m *mute) answer(ctx context.Context) error {
	if !m.silent.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (m *mute) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	if err := m.answer(ctx); err != nil {
		return nil, err
	}
	return m.Store.Record(ctx, l, r)
}

func (m *mute) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if err := m.answer(ctx); err != nil {
		return state.Committed{}, err
	}
	return m.Store.Commit(ctx, l, c)
}

func (m *mute) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	if err := m.answer(ctx); err != nil {
		return err
	}
	return m.Store.Release(ctx, l, delay)
}

// A worker whose store does not answer stops soon after its grace, in each phase of a turn: the leases are long.
func TestShutdownWithoutAStore(t *testing.T) {
	for _, phase := range []string{"model", "tool", "commit"} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDeployment(t)
				store := &mute{Store: s.store}
				started := make(chan struct{})
				s.tools["work"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
					if phase == "tool" {
						close(started)
						<-ctx.Done()
					}
					return tool.Result{Content: "done"}, nil
				})
				s.model = generator(func(ctx context.Context, r model.Request) (model.Response, error) {
					switch phase {
					case "model":
						close(started)
						<-ctx.Done()
					case "commit":
						store.silent.Store(true)
						close(started)
					}
					if phase != "tool" {
						return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}}, ctx.Err()
					}
					return model.Response{Parts: []state.Part{{Type: state.PartToolCall, ID: "c1", Name: "work", Arguments: "{}"}}}, nil
				})
				cfg := s.config()
				cfg.ShutdownGrace, cfg.LeaseDuration = time.Second, 10*time.Minute
				w, err := worker.New(store, s.bus, cfg)
				if err != nil {
					t.Fatal(err)
				}
				stop := s.run(w)
				s.submit(state.Limits{}, []agent.Tool{{Name: "work", Timeout: model.Duration(time.Hour)}})
				<-started
				synctest.Wait()
				store.silent.Store(true)
				began := time.Now()
				stop()
				if took := time.Since(began); took > cfg.ShutdownGrace+6*time.Second {
					t.Errorf("Run returned %s after its context had ended, with a grace of %s", took, cfg.ShutdownGrace)
				}
			})
		})
	}
}

// After Release, a worker stops soon, although its grace is long and its store does not answer.
func TestReleaseWithoutAStore(t *testing.T) {
	for _, early := range []bool{false, true} { // early: Release comes before the end of the context
		synctest.Test(t, func(t *testing.T) {
			s := newDeployment(t)
			store := &mute{Store: s.store}
			started := make(chan struct{})
			s.tools["work"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				close(started)
				<-ctx.Done()
				return tool.Result{}, ctx.Err()
			})
			cfg := s.config()
			cfg.ShutdownGrace, cfg.LeaseDuration = time.Hour, 10*time.Minute
			w, err := worker.New(store, s.bus, cfg)
			if err != nil {
				t.Fatal(err)
			}
			stop := s.run(w)
			s.submit(state.Limits{}, []agent.Tool{{Name: "work", Timeout: model.Duration(time.Hour)}}, call("work", "c1"))
			<-started
			store.silent.Store(true)
			began := time.Now()
			if !early {
				go stop()
				time.Sleep(time.Minute) // the bubble's clock
				began = time.Now()
			}
			w.Release()
			stop()
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("Run returned %s after Release (early: %t)", took, early)
			}
		})
	}
}

// slowSweep is a mute store whose sweeps, once it is silent, end only after nine seconds, like a read that its client
// does not cancel.
type slowSweep struct {
	*mute

	sweeping chan struct{}
	once     sync.Once
}

func (s *slowSweep) Sweep(ctx context.Context, limit int, delay time.Duration, b state.Backlog) ([]state.Due, error) {
	if !s.silent.Load() {
		return s.mute.Sweep(ctx, limit, delay, b)
	}
	s.once.Do(func() { close(s.sweeping) })
	time.Sleep(9 * time.Second)
	return nil, context.DeadlineExceeded
}

// The grace of a worker counts from the signal to stop, also if a sweep does not end at once.
func TestShutdownDuringASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		store := &slowSweep{mute: &mute{Store: s.store}, sweeping: make(chan struct{})}
		started := make(chan struct{})
		s.tools["work"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			close(started)
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		})
		cfg := s.config()
		cfg.ShutdownGrace, cfg.LeaseDuration = 20*time.Second, 10*time.Minute
		w, err := worker.New(store, s.bus, cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := s.run(w)
		s.submit(state.Limits{}, []agent.Tool{{Name: "work", Timeout: model.Duration(time.Hour)}}, call("work", "c1"))
		<-started
		store.silent.Store(true)
		<-store.sweeping
		began := time.Now()
		stop()
		if took := time.Since(began); took > cfg.ShutdownGrace+6*time.Second {
			t.Errorf("Run returned %s after its context had ended, with a grace of %s", took, cfg.ShutdownGrace)
		}
	})
}

// lateClaim is a store whose answer to the first claim comes when nobody waits for it any more.
type lateClaim struct {
	state.Store

	claims  atomic.Int64
	claimed chan struct{}
}

func (l *lateClaim) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	c, err := l.Store.Claim(ctx, q)
	if l.claims.Add(1) == 1 {
		close(l.claimed)
		<-ctx.Done()
		return nil, errors.Join(ctx.Err(), err)
	}
	return c, err
}

// A worker that stops while it waits for the answer to a claim leaves the run to others at once.
func TestShutdownDuringAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		store := &lateClaim{Store: s.store, claimed: make(chan struct{})}
		stop := s.workOn(store, s.config())
		id := s.submit(state.Limits{}, nil, model.Scripted{Text: "done"})
		<-store.claimed
		stop()
		if st, err := s.store.Load(t.Context(), id); err != nil || st.Status != state.Queued {
			t.Errorf("the run is %s, %v, want that another worker may claim it", st.Status, err)
		}
	})
}
