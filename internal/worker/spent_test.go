package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// broken is a provider whose first calls break off as configured. It answers later calls.
type broken struct {
	mu    sync.Mutex
	calls int
	fail  []func(ctx context.Context) (model.Response, error)
}

func (p *broken) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	p.mu.Lock()
	n := p.calls
	p.calls++
	p.mu.Unlock()
	if n < len(p.fail) {
		return p.fail[n](ctx)
	}
	return model.Response{
		Provider: "scripted", Model: "claude-haiku-4-5", Stop: model.StopEnd, Parts: []state.Part{{Type: state.PartText, Text: "end"}},
		Usage: state.Usage{InputTokens: 100, OutputTokens: 10},
	}, nil
}

func (p *broken) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// entries returns the entries of a run's log that ok selects.
func (s *deployment) entries(id state.RunID, ok func(state.Entry) bool) []state.Entry {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []state.Entry
	for _, e := range log {
		if ok(e) {
			out = append(out, e)
		}
	}
	return out
}

func tombstoned(e state.Entry) bool { return e.Type == state.EntryTombstoned }

func recovered(e state.Entry) bool { return e.Reason == state.Recovered }

// counts fails the test unless a run's usage equals the sum over its log.
func (s *deployment) counts(id state.RunID) state.Usage {
	s.t.Helper()
	var sum state.Usage
	for _, e := range s.entries(id, func(e state.Entry) bool { return e.Usage != nil }) {
		sum = sum.Add(*e.Usage)
	}
	st, err := s.store.Load(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	got := st.Usage
	got.ToolCalls = 0
	if (got.CostUSD == nil) != (sum.CostUSD == nil) || got.CostUSD != nil && *got.CostUSD != *sum.CostUSD {
		s.t.Errorf("the run has cost %v, its log says %v", got.CostUSD, sum.CostUSD)
	}
	if got.CostUSD, sum.CostUSD = nil, nil; got != sum {
		s.t.Errorf("the run has used %+v, its log says %+v", got, sum)
	}
	return st.Usage
}

// Calls that broke off and were retried within a turn are in the log with their text and cost: the usage that
// the provider reported, and an estimate for the rest. Refused calls cost nothing.
func TestRetriedCallsAreCounted(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	p := &broken{fail: []func(context.Context) (model.Response, error){
		func(context.Context) (model.Response, error) {
			return model.Response{Usage: state.Usage{InputTokens: 100, OutputTokens: 500}, Model: "claude-haiku-4-5"},
				&model.Error{Class: model.Transport, Message: "gone", Partial: "five hundred tokens", Received: 2000}
		},
		func(context.Context) (model.Response, error) {
			return model.Response{Usage: state.Usage{InputTokens: 100, OutputTokens: 1, Estimated: true}, Model: "claude-haiku-4-5"},
				&model.Error{Class: model.Overloaded, Message: "busy", Partial: "ten", Received: 40}
		},
	}}
	s.model = p
	cfg := s.config()
	cfg.Prices = model.DefaultPrices()
	s.work(cfg)
	id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Name: "claude-haiku-4-5"}})
	s.awaitReason(id, state.EndCompleted)
	lost := s.entries(id, tombstoned)
	if len(lost) != 2 || lost[0].Usage == nil || lost[1].Usage == nil {
		t.Fatalf("the log has the failed calls %+v", lost)
	}
	if u := lost[0].Usage; u.InputTokens != 100 || u.OutputTokens != 500 || u.Estimated || u.CostUSD == nil || u.ModelCalls != 1 || lost[0].Message.Text() != "five hundred tokens" {
		t.Errorf("the first call used %+v", u)
	}
	if u := lost[1].Usage; u.InputTokens != 100 || u.OutputTokens != 10 || !u.Estimated || u.CostUSD == nil {
		t.Errorf("the second call used %+v", u)
	}
	if u := s.counts(id); u.InputTokens != 300 || u.OutputTokens != 520 || u.ModelCalls != 3 || !u.Estimated {
		t.Errorf("the run used %+v", u)
	}
	if st, _ := s.store.Load(t.Context(), id); st.ModelRequests != 3 || st.Turn != 1 {
		t.Errorf("%d calls in %d turns", st.ModelRequests, st.Turn)
	}

	refused := s.submit(state.Limits{}, nil)
	s.awaitReason(refused, state.EndCompleted)
	if u := s.counts(refused); u.ModelCalls != 1 || u.Estimated {
		t.Errorf("a run without a broken call used %+v", u)
	}
}

// Refused calls cost nothing, over several turns and within one.
func TestRefusedCallsCostNothing(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	id := s.submit(state.Limits{}, nil, model.Scripted{Error: model.Overloaded}, model.Scripted{Error: model.RateLimited}, model.Scripted{Error: model.Transport}, model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
	if u := s.counts(id); u.ModelCalls != 1 || u.Estimated || len(s.entries(id, tombstoned)) > 0 {
		t.Errorf("refused calls used %+v", u)
	}
}

// A call that failed for good counts toward the limits: no other call is made once they are used up.
func TestFailedCallsCountTowardLimits(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	fail := func(context.Context) (model.Response, error) {
		return model.Response{}, &model.Error{Class: model.Timeout, Message: "no answer within 1s", Partial: "half an ans", Received: 400}
	}
	p := &broken{fail: []func(context.Context) (model.Response, error){fail, fail, fail, fail}}
	s.model = p
	s.work(s.config())
	id := s.submit(state.Limits{OutputTokens: 600}, nil)
	s.awaitReason(id, state.EndTokenBudget)
	if n := p.asked(); n != 2 {
		t.Errorf("the model was called %d times, want 2: each failed call counts the expected 512 output tokens", n)
	}
	if u := s.counts(id); !u.Estimated || u.ModelCalls != 2 || u.InputTokens == 0 {
		t.Errorf("the run used %+v", u)
	}
}

// An abort in the middle of a response leaves its cost next to its text in the log.
func TestAbortedCallIsCounted(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	speaking := make(chan struct{})
	s.model = &broken{fail: []func(context.Context) (model.Response, error){func(ctx context.Context) (model.Response, error) {
		close(speaking)
		<-ctx.Done()
		return model.Response{Usage: state.Usage{InputTokens: 90, OutputTokens: 1, Estimated: true}},
			&model.Error{Class: model.Cancelled, Streamed: true, Partial: "half an answer", Received: 80, Err: ctx.Err()}
	}}}
	s.work(s.config())
	id := s.submit(state.Limits{}, nil)
	<-speaking
	s.abort(id)
	s.awaitReason(id, state.EndAbortedStreaming)
	lost := s.entries(id, tombstoned)
	if len(lost) != 1 || lost[0].Message.Text() != "half an answer" || lost[0].Usage == nil {
		t.Fatalf("the log has the failed calls %+v", lost)
	}
	if u := s.counts(id); u.InputTokens != 90 || u.OutputTokens != 20 || !u.Estimated || u.ModelCalls != 1 {
		t.Errorf("the run used %+v", u)
	}
}

// An abort after complete tool calls have arrived leaves the cost of the response in the log.
func TestAbortedCallWithToolCallsIsCounted(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	speaking := make(chan struct{})
	s.model = &broken{fail: []func(context.Context) (model.Response, error){func(ctx context.Context) (model.Response, error) {
		close(speaking)
		<-ctx.Done()
		return model.Response{Usage: state.Usage{InputTokens: 90, OutputTokens: 1, Estimated: true}, Parts: []state.Part{{Type: state.PartToolCall, ID: "c1", Name: "t", Arguments: "{}"}}},
			&model.Error{Class: model.Cancelled, Received: 80, Err: ctx.Err()}
	}}}
	s.tools["t"] = newBlocking()
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "t"}})
	<-speaking
	s.abort(id)
	s.await(id, "an end", func(st state.State) bool { return st.Status == state.Cancelled })
	if u := s.counts(id); u.InputTokens != 90 || u.OutputTokens != 20 || !u.Estimated || u.ModelCalls != 1 {
		t.Errorf("the run used %+v", u)
	}
}

// A worker that shuts down in the middle of a model call releases the turn with the cost of the call.
func TestShutdownCountsTheCall(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	speaking := make(chan struct{})
	s.model = &broken{fail: []func(context.Context) (model.Response, error){func(ctx context.Context) (model.Response, error) {
		close(speaking)
		<-ctx.Done()
		return model.Response{Usage: state.Usage{InputTokens: 90, OutputTokens: 30}}, &model.Error{Class: model.Cancelled, Partial: "half", Err: ctx.Err()}
	}}}
	stop := s.work(s.config())
	id := s.submit(state.Limits{}, nil)
	<-speaking
	stop()
	s.work(s.config())
	s.awaitReason(id, state.EndCompleted)
	if u := s.counts(id); u.InputTokens != 190 || u.OutputTokens != 40 || u.Estimated || u.ModelCalls != 2 {
		t.Errorf("the run used %+v", u)
	}
	if n := len(s.entries(id, recovered)); n > 0 {
		t.Error("a released turn counts as an attempt")
	}
	if full := state.FullView(s.entries(id, func(state.Entry) bool { return true })); len(full) != 3 || !full[1].Tombstoned {
		t.Errorf("the transcript is %+v", full)
	}
}

// Model calls in flight when their workers died count once each, estimated from the request, and toward the
// limits.
func TestCrashedCallsAreCounted(t *testing.T) {
	t.Parallel()
	// die evicts workers in the middle of their model calls, one after the other.
	die := func(s *deployment, id state.RunID, asked chan struct{}, crashes int, cfg func() string) {
		for range crashes {
			owner := cfg()
			<-asked
			due, err := s.store.Evict(s.t.Context(), owner, 100, time.Millisecond)
			if err != nil || len(due) != 1 {
				s.t.Fatalf("Evict = %+v, %v", due, err)
			}
			// Only workers that resume the turns learn of the eviction.
			if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: due[0].Version, Priority: state.Normal}, "again "+owner); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	setup := func(t *testing.T, crashes int) (*deployment, *broken, chan struct{}, func() string) {
		s := newDeployment(t)
		asked, over := make(chan struct{}, 10), make(chan struct{})
		t.Cleanup(func() { close(over) })
		p := &broken{}
		for range crashes {
			p.fail = append(p.fail, func(context.Context) (model.Response, error) {
				asked <- struct{}{}
				<-over // the process is dead
				return model.Response{}, &model.Error{Class: model.Cancelled}
			})
		}
		s.model = p
		return s, p, asked, func() string {
			cfg := s.config()
			cfg.Slots, cfg.Prices = 1, model.DefaultPrices()
			cfg.SweepInterval, cfg.HeartbeatInterval = time.Hour, 0
			s.work(cfg)
			return cfg.ID
		}
	}

	t.Run("counted", func(t *testing.T) {
		t.Parallel()
		s, p, asked, start := setup(t, 2)
		def := agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Name: "claude-haiku-4-5"}, Instructions: "Be brief, and as exact as you can."}
		id := s.submitTo(def)
		die(s, id, asked, 2, start)
		start()
		s.awaitReason(id, state.EndCompleted)
		if n := p.asked(); n != 3 {
			t.Errorf("the model was called %d times", n)
		}
		found := s.entries(id, recovered)
		if len(found) != 1 || found[0].Usage == nil || !found[0].Usage.Estimated || found[0].Usage.ModelCalls != 2 || found[0].Usage.InputTokens == 0 || found[0].Usage.CostUSD == nil {
			t.Fatalf("the log has the failed calls %+v", found)
		}
		u := s.counts(id)
		if u.ModelCalls != 3 || !u.Estimated || u.OutputTokens != 2*512+10 {
			t.Errorf("the run used %+v", u)
		}
		if st, _ := s.store.Load(t.Context(), id); st.ModelRequests != 1 || st.Turn != 1 {
			t.Errorf("an estimated call counts as a turn: %d calls of the script in %d turns", st.ModelRequests, st.Turn)
		}
		rows := state.Audit(s.entries(id, func(state.Entry) bool { return true }))
		if got := rows[len(rows)-1].Usage; got.ModelCalls != 3 || !got.Estimated {
			t.Errorf("the audit trail has %+v", got)
		}
	})

	t.Run("once, although a worker that has counted them stops or dies too", func(t *testing.T) {
		t.Parallel()
		s, p, asked, start := setup(t, 3)
		p.fail[1] = func(ctx context.Context) (model.Response, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return model.Response{Usage: state.Usage{InputTokens: 90, OutputTokens: 30}}, &model.Error{Class: model.Cancelled, Partial: "half", Err: ctx.Err()}
		}
		id := s.submit(state.Limits{}, nil)
		die(s, id, asked, 1, start)
		stop := s.work(s.config())
		<-asked
		stop() // what the first call and its own have cost is in the log
		die(s, id, asked, 1, start)
		start()
		s.awaitReason(id, state.EndCompleted)
		var calls []int64
		for _, e := range s.entries(id, recovered) {
			calls = append(calls, e.Usage.ModelCalls)
		}
		if u := s.counts(id); u.ModelCalls != 4 || u.OutputTokens != 512+30+512+10 || !slices.Equal(calls, []int64{1, 1}) {
			t.Errorf("the run used %+v, of which calls of dead workers %v", u, calls)
		}
	})

	t.Run("toward a limit", func(t *testing.T) {
		t.Parallel()
		s, p, asked, start := setup(t, 2)
		id := s.start(s.create(state.Limits{OutputTokens: 1000}, nil))
		die(s, id, asked, 2, start)
		start()
		s.awaitReason(id, state.EndTokenBudget)
		if n := p.asked(); n != 2 {
			t.Errorf("the model was called %d times, want 2: the limit was used up", n)
		}
		s.counts(id)
	})

	t.Run("of a run that is aborted, or hears something, meanwhile", func(t *testing.T) {
		t.Parallel()
		for _, what := range []string{"abort", "message"} {
			s, _, asked, start := setup(t, 1)
			id := s.submit(state.Limits{}, nil)
			die(s, id, asked, 1, start)
			if m := state.UserText("and then?"); what == "message" {
				s.signal(id, state.Signal{ID: "m", Message: &m})
			} else {
				s.abort(id)
			}
			start()
			st := s.await(id, "an end", func(st state.State) bool { return st.Status.Terminal() })
			if u := s.counts(id); !u.Estimated || u.ModelCalls < 1 {
				t.Errorf("%s: the run used %+v (%s)", what, u, st.Transition.Reason)
			}
		}
	})
}

// A turn that is resumed after its response was journaled makes no second call.
func TestJournaledCallIsCountedOnce(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, call("slow", "c1"), model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	<-slow.started
	if due, err := s.store.Evict(t.Context(), first.ID, 100, time.Millisecond); err != nil || len(due) != 1 {
		t.Fatalf("Evict = %v, %v", due, err)
	}
	s.work(s.config())
	<-slow.started
	close(slow.release)
	s.awaitReason(id, state.EndCompleted)
	if u := s.counts(id); u.ModelCalls != 2 || u.Estimated {
		t.Errorf("the run used %+v", u)
	}
}
