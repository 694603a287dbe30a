package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// ledger is a store that records which turns were claimed eagerly, and which of those the worker continued
// with.
type ledger struct {
	state.Store

	after func(state.Committed) // called after a commit that claimed the next turn; nil does nothing

	mu      sync.Mutex
	claimed []string
	resumed []string
}

func (l *ledger) Commit(ctx context.Context, lease state.Lease, c state.Commit) (state.Committed, error) {
	done, err := l.Store.Commit(ctx, lease, c)
	if done.Claimed {
		l.mu.Lock()
		l.claimed = append(l.claimed, c.EagerClaim)
		l.mu.Unlock()
		if l.after != nil {
			l.after(done)
		}
	}
	return done, err
}

func (l *ledger) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	l.mu.Lock()
	if slices.Contains(l.claimed, q.Token) {
		l.resumed = append(l.resumed, q.Token)
	}
	l.mu.Unlock()
	return l.Store.Claim(ctx, q)
}

// turns returns the number of turns that were claimed eagerly, and of those the worker continued with.
func (l *ledger) turns() (claimed, resumed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claimed), len(l.resumed)
}

// amongMembers runs test in a bubble with a worker that has seen all other workers.
func amongMembers(t *testing.T, test func(s *deployment, l *ledger, cfg worker.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		l := &ledger{Store: s.store}
		cfg := s.config()
		cfg.RedeliveryDelay, cfg.SweepInterval, cfg.HeartbeatInterval, cfg.ShutdownGrace = 5*time.Second, time.Second, 300*time.Millisecond, time.Second
		cfg.Without.EagerClaims, cfg.Without.Sticky = false, false
		test(s, l, cfg)
	})
}

// listen is the time that workers take to discover each other.
const listen = 2 * time.Second

// A worker continues with the next turn of a run it has committed, without another claim.
func TestEagerClaim(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), call("one", "c2"), model.Scripted{Text: "end"})
		s.awaitReason(id, state.EndCompleted)
		if claimed, resumed := l.turns(); claimed != 2 || resumed != 2 {
			s.t.Errorf("%d turns were claimed eagerly and %d continued, want 2 and 2", claimed, resumed)
		}
		if got, want := s.transcript(id), []string{"user: hello", "assistant: c1", "tool: 1", "assistant: c2", "tool: 1", "assistant: end"}; !slices.Equal(got, want) {
			s.t.Errorf("transcript %q, want %q", got, want)
		}
		stop()
	})
}

// No worker claims eagerly while an older build is present: older workers do not take over runs in this build's
// format before their leases end.
func TestNoEagerClaimBesideOlderBuild(t *testing.T) {
	t.Parallel()
	old := bus.Heartbeat{Worker: "old", Format: state.Format - 1}
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		stop := s.workOn(l, cfg)
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			s.bus.SendHeartbeat(old)
		}
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
		s.awaitReason(id, state.EndCompleted)
		if claimed, _ := l.turns(); claimed != 0 {
			s.t.Errorf("%d turns were claimed eagerly, want 0", claimed)
		}
		old.Leaving = true
		s.bus.SendHeartbeat(old)
		time.Sleep(listen)
		id = s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
		s.awaitReason(id, state.EndCompleted)
		if claimed, _ := l.turns(); claimed != 1 {
			s.t.Errorf("%d turns were claimed eagerly after the older worker left, want 1", claimed)
		}
		stop()
	})
}

// The worker renews the lease of an eager claim before the sweeper finds it expired.
func TestEagerClaimIsRenewed(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		slow := call("one", "c2")
		slow.Delay = model.Duration(time.Minute)
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), slow, model.Scripted{Text: "end"})
		time.Sleep(90 * time.Second)
		s.awaitReason(id, state.EndCompleted)
		if _, resumed := l.turns(); resumed != 2 {
			s.t.Errorf("%d turns were continued, want 2", resumed)
		}
		s.onlyFirstAttempts(id)
		stop()
	})
}

// No other worker gets a turn that waits for its model, even if its message is duplicated.
func TestEagerClaimIsConfirmed(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		slow := model.Scripted{Text: "end", Delay: model.Duration(time.Second)}
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), slow)
		time.Sleep(600 * time.Millisecond)
		if claimed, resumed := l.turns(); claimed != 1 || resumed != 1 {
			s.t.Fatalf("%d turns were claimed eagerly and %d continued, want 1 and 1", claimed, resumed)
		}
		c, err := s.store.Claim(s.t.Context(), state.ClaimRequest{Run: id, Version: 2, Token: "other", Worker: "other", Lease: time.Minute, RedeliveryDelay: time.Minute})
		if err != nil || c.Outcome != state.ClaimBusy {
			s.t.Errorf("Claim = %s, %v; want %s", c.Outcome, err, state.ClaimBusy)
		}
		s.awaitReason(id, state.EndCompleted)
		stop()
	})
}

// An abort after the commit and before the message ends the run before the next model call (I7).
func TestEagerClaimSeesAbort(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		var id state.RunID
		l.after = func(state.Committed) {
			s.abort(id)
			time.Sleep(time.Millisecond) // until the abort has been delivered: the clock is still until then
		}
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id = s.create(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
		s.start(id)
		end := s.await(id, "cancelled", func(st state.State) bool { return st.Status.Terminal() })
		if end.Status != state.Cancelled || end.Turn != 1 {
			s.t.Errorf("the run is %s after %d turns, want cancelled after 1", end.Status, end.Turn)
		}
		if _, resumed := l.turns(); resumed != 0 {
			s.t.Error("the worker continued without reading the store")
		}
		stop()
	})
}

// If an eagerly claimed turn is delivered to its worker twice, the later claim is in force, not the one in
// memory (I2).
func TestEagerClaimIsOlder(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		var id state.RunID
		l.after = func(done state.Committed) {
			if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: done.Version, Priority: state.Normal}, "double"); err != nil {
				s.t.Error(err)
			}
			time.Sleep(time.Millisecond) // until it is claimed
		}
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		slow := model.Scripted{Text: "end", Delay: model.Duration(100 * time.Millisecond)}
		id = s.create(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), slow)
		began := time.Now()
		s.start(id)
		s.awaitReason(id, state.EndCompleted)
		if took := time.Since(began); took > time.Second {
			s.t.Errorf("the run took %s", took)
		}
		stop()
	})
}

// slowTurns is a bus that delays all turn messages of a run but the first.
type slowTurns struct {
	bus.Bus

	by time.Duration
}

func (b slowTurns) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if t.Version > 1 {
		time.Sleep(b.by)
	}
	return b.Bus.PublishTurn(ctx, t, id)
}

// A worker uses an eager claim for two fifths of its lease. After that it asks the store, which has aborts and
// other owners.
func TestEagerClaimAges(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]int{1900 * time.Millisecond: 1, 2100 * time.Millisecond: 0} {
		amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
			s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
			stop := s.workWith(l, slowTurns{s.bus, late}, cfg)
			time.Sleep(listen)
			id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
			s.awaitReason(id, state.EndCompleted)
			if claimed, resumed := l.turns(); claimed != 1 || resumed != want {
				s.t.Errorf("message after %s: %d turns were claimed eagerly and %d continued, want 1 and %d", late, claimed, resumed, want)
			}
			stop()
		})
	}
}

// Two messages of an eagerly claimed turn do not start its tools twice (I4).
func TestEagerClaimIsUsedOnce(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		slow := newBlocking()
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		s.tools["slow"] = slow
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}, {Name: "slow"}}, call("one", "c1"), call("slow", "c2"), model.Scripted{Text: "end"})
		<-slow.started
		if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: 2, Priority: state.Normal}, "double"); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(listen)
		close(slow.release)
		s.awaitReason(id, state.EndCompleted)
		if _, resumed := l.turns(); resumed != 2 || slow.calls.Load() != 1 {
			s.t.Errorf("%d turns were continued and the tool was called %d times, want 2 and 1", resumed, slow.calls.Load())
		}
		stop()
	})
}

// hanging is a store that does not answer some renewals.
type hanging struct {
	state.Store

	on func(state.Lease) bool
}

func (s hanging) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	if s.on(l) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Renew(ctx, l, lease, delay)
}

// deaf is a store that renews nothing.
type deaf struct{ state.Store }

func (deaf) Renew(context.Context, state.Lease, time.Duration, time.Duration) (*state.Abort, error) {
	return nil, errors.New("connection refused")
}

// An eagerly claimed turn that cannot be renewed ends well before another worker may start it, which is after
// the redelivery delay. This holds for every moment of the claim between two renewals (I8).
func TestEagerClaimIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(state.Store) state.Store{
		"silent":   func(s state.Store) state.Store { return hanging{s, func(state.Lease) bool { return true }} },
		"refusing": func(s state.Store) state.Store { return deaf{s} },
	} {
		for after := time.Duration(0); after < time.Second; after += 30 * time.Millisecond {
			amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
				var claimed time.Time
				lasted := make(chan time.Duration, 1)
				s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
				s.tools["two"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
					<-ctx.Done()
					select {
					case lasted <- time.Since(claimed):
					default:
					}
					return tool.Result{}, ctx.Err()
				})
				l.after = func(state.Committed) { claimed = time.Now() }
				l.Store = store(l.Store)
				stop := s.workOn(l, cfg)
				time.Sleep(listen + after)
				s.submit(state.Limits{}, []agent.Tool{{Name: "one"}, {Name: "two"}}, call("one", "c1"), call("two", "c2"), model.Scripted{Text: "end"})
				if d := <-lasted; d >= cfg.RedeliveryDelay*9/10 {
					s.t.Errorf("%s, claimed %s after a renewal: its tool still ran %s after the claim", name, after, d)
				}
				stop()
			})
		}
	}
}

// A renewal without an answer does not delay other renewals.
func TestEagerClaimBesideHangingRenewal(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		slow := model.Scripted{Text: "end", Delay: model.Duration(20 * time.Second)}
		var other atomic.Value
		l.Store = hanging{l.Store, func(l state.Lease) bool { return l.Run == other.Load() }}
		stop := s.workOn(l, cfg)
		other.Store(s.submit(state.Limits{}, nil, slow))
		time.Sleep(8500 * time.Millisecond) // its renewal comes next
		slow.Delay = model.Duration(8 * time.Second)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), slow)
		s.awaitReason(id, state.EndCompleted)
		s.onlyFirstAttempts(id)
		stop()
	})
}

// A worker that shuts down commits without claiming the next turn. No other worker would resume such a turn
// before a new worker joins, and that one would count an attempt.
func TestNoEagerClaimAtTheEnd(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		slow := newBlocking()
		s.tools["slow"] = slow
		stop := s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow"}}, call("slow", "c1"), model.Scripted{Text: "end"})
		<-slow.started
		go stop()
		synctest.Wait()
		close(slow.release)
		s.await(id, "queued", func(st state.State) bool { return st.Version == 2 && st.Status == state.Queued })
		stop()
	})
}

// onlyFirstAttempts fails if a turn of a run was started twice.
func (s *deployment) onlyFirstAttempts(id state.RunID) {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range log {
		if e.Attempt > 1 {
			s.t.Errorf("entry %s of turn %d has attempt %d, want 1", e.Type, e.Turn, e.Attempt)
		}
	}
}

// A worker that shuts down releases its eager claims, and they count no attempt.
func TestEagerClaimIsReleased(t *testing.T) {
	t.Parallel()
	amongMembers(t, func(s *deployment, l *ledger, cfg worker.Config) {
		s.tools["one"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "1"}, nil })
		var stop func()
		l.after = func(state.Committed) {
			go stop()
			time.Sleep(time.Millisecond) // until it takes no more turns
		}
		stop = s.workOn(l, cfg)
		time.Sleep(listen)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "one"}}, call("one", "c1"), model.Scripted{Text: "end"})
		s.await(id, "version 2", func(st state.State) bool { return st.Version == 2 })
		stop()
		if claimed, resumed := l.turns(); claimed != 1 || resumed != 0 {
			s.t.Fatalf("%d turns were claimed eagerly and %d continued, want 1 and 0", claimed, resumed)
		}
		l.after = nil
		stop = s.workOn(l, cfg)
		s.awaitReason(id, state.EndCompleted)
		s.onlyFirstAttempts(id)
		stop()
	})
}
