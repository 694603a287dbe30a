package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Each turn, model call and tool call has one span, nested, in the submitter's trace (F6).
func TestSpans(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Error("no"), nil })
	recorder := tracetest.NewSpanRecorder()
	cfg := s.config()
	cfg.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	id := s.create(state.Limits{}, []agent.Tool{{Name: "add"}}, call("add", "c1"), model.Scripted{Text: "done"})
	first := bus.Turn{Run: id, Version: 1, Priority: state.Normal, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if err := s.bus.PublishTurn(t.Context(), first, string(id)+":1"); err != nil {
		t.Fatal(err)
	}
	s.work(cfg) // started only now: a sweep could publish the turn before, without its trace
	s.awaitReason(id, state.EndCompleted)
	s.await(id, "five spans", func(state.State) bool { return len(recorder.Ended()) == 5 })
	names := map[string]string{"b7ad6b7169203331": "submitter"}
	for _, span := range recorder.Ended() {
		names[span.SpanContext().SpanID().String()] = span.Name()
	}
	var got []string
	for _, span := range recorder.Ended() {
		if trace := span.SpanContext().TraceID().String(); trace != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is in trace %s", span.Name(), trace)
		}
		got = append(got, fmt.Sprintf("%s < %s %s", span.Name(), names[span.Parent().SpanID().String()], span.Status().Description))
	}
	slices.Sort(got)
	want := []string{"chat < turn a ", "chat < turn a ", "execute_tool add < turn a tool_error", "turn a < submitter ", "turn a < submitter "}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("spans:\n%s", diff)
	}
}

// forgetful is a bus whose messages lose their trace context.
type forgetful struct{ bus.Bus }

func (f forgetful) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	t.TraceParent = ""
	return f.Bus.PublishTurn(ctx, t, id)
}

// Turns find their trace in the run's header if their messages have lost it. If the submitter started none, the
// first turn does (F6).
func TestTraceIsInTheState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.tools["add"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			return tool.Result{Content: c.TraceParent}, nil
		})
		recorder := tracetest.NewSpanRecorder()
		cfg := s.config()
		cfg.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
		s.define(agent.Definition{Name: "researcher", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found"}}}})
		s.workWith(s.store, forgetful{s.bus}, cfg)
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "add"}, researcher}, call("add", "c1"), delegation("a"), model.Scripted{Text: "done"})
		s.awaitReason(id, state.EndCompleted)
		s.await(id, "eleven spans", func(state.State) bool { return len(recorder.Ended()) == 11 })
		traces := map[string]int{}
		names := map[string]int{}
		for _, span := range recorder.Ended() {
			traces[span.SpanContext().TraceID().String()]++
			names[span.Name()]++
		}
		want := map[string]int{"turn a": 4, "chat": 4, "execute_tool add": 1, "submit researcher": 1, "turn researcher": 1}
		if diff := gocmp.Diff(want, names); diff != "" || len(traces) != 1 {
			t.Errorf("spans in %d traces:\n%s", len(traces), diff)
		}
	})
}

// Without a tracer, no trace context is made up.
func TestNoTracer(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	told := make(chan string, 1)
	s.tools["add"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		told <- c.TraceParent
		return tool.Result{}, nil
	})
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "add"}}, call("add", "c1"), model.Scripted{Text: "done"})
	if st, parent := s.awaitReason(id, state.EndCompleted), <-told; st.TraceSpan != "" || parent != "" {
		t.Errorf("the run has trace %q, the tool got %q", st.TraceSpan, parent)
	}
}

// downed is a model that does not answer.
type downed struct{ calls atomic.Int32 }

func (d *downed) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	d.calls.Add(1)
	return model.Response{}, &model.Error{Class: model.Timeout, Err: errors.New("no answer")}
}

// A model that does not answer is not called again for a while. Runs use their fallback at once (A17, A12).
func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	down := &downed{}
	cfg := s.config()
	cfg.Providers["openai"] = down
	cfg.Breakers = model.BreakerPolicy{Failures: 2}
	s.work(cfg)
	for range 4 {
		id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{
			Provider: "openai", Name: "gpt", Fallback: []agent.Model{{Provider: "scripted", Responses: []model.Scripted{{Text: "I am here"}}}},
		}})
		s.awaitReason(id, state.EndCompleted)
	}
	if n := down.calls.Load(); n != 2 {
		t.Errorf("the model was called %d times, want 2", n)
	}
}

// A watcher has received a turn before the model is called for the next (A16).
func TestWatchedAsItHappens(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "42"}, nil })
	k := &lookout{deployment: s}
	cfg := s.config()
	cfg.Providers = map[string]model.Provider{"scripted": k}
	id := s.create(state.Limits{}, []agent.Tool{{Name: "add"}}, call("add", "c1"), call("add", "c2"), model.Scripted{Text: "done"})
	stop, err := s.bus.Watch(t.Context(), id, func(n bus.Notice) {
		if n.To > 0 {
			k.seen.Store(n.To)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.work(cfg)
	s.start(id)
	s.awaitReason(id, state.EndCompleted)
	if late := k.late.Load(); late > 0 {
		t.Errorf("the model was called %d times before the watcher received the previous turn", late)
	}
}

// lookout records model calls that came before the events of the previous turn.
type lookout struct {
	*deployment
	seen, late atomic.Int64
}

func (k *lookout) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	// A sent message is not yet delivered: the watcher gets a moment.
	want := int64(1 + 3*r.Call) // a submission, and message, result and transition for each turn
	if r.Call == 0 {
		want = 0 // a submission sends no notification
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if k.seen.Load() >= want {
			return k.model.Generate(ctx, r, onDelta)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return model.Response{}, ctx.Err()
		}
	}
	k.late.Add(1)
	return k.model.Generate(ctx, r, onDelta)
}

// Watchers of a two_phase run receive the answer as deltas, without the JSON of its actions (K5).
func TestTwoPhaseStreamsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.createStreaming(agent.Definition{
		Name: "a", Loop: agent.Loop{Type: "two_phase"},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: `{"nothing": "to do"}`}, {Text: "Here is the answer."}}},
	})
	var said atomic.Value
	said.Store("")
	stop, err := s.bus.Watch(t.Context(), id, func(n bus.Notice) {
		var live struct {
			Type  string
			Delta struct{ Text string }
		}
		if json.Unmarshal(n.Live, &live) == nil && live.Type == "model.delta" {
			said.Store(said.Load().(string) + live.Delta.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.work(s.config())
	s.start(id)
	s.awaitReason(id, state.EndCompleted)
	s.await(id, "the answer in pieces", func(state.State) bool { return said.Load() == "Here is the answer." })
}

// The span of an attempt names its turn, also if the attempt was given up.
func TestSpanOfAnAttemptNamesItsTurn(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	recorder := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, call("slow", "c1"), model.Scripted{Text: "end"})
	first, second := s.config(), s.config()
	first.Tracer, second.Tracer = tracer, tracer
	s.work(first)
	<-slow.started
	if due, err := s.store.Evict(t.Context(), first.ID, 100, time.Millisecond); err != nil || len(due) != 1 {
		t.Fatalf("Evict = %v, %v", due, err)
	}
	s.work(second)
	<-slow.started
	close(slow.release)
	s.awaitReason(id, state.EndCompleted)
	attempts := func() (all []string) {
		for _, ended := range recorder.Ended() {
			if ended.Name() != "turn a" {
				continue
			}
			is := map[string]string{}
			for _, a := range ended.Attributes() {
				is[string(a.Key)] = a.Value.String()
			}
			all = append(all, "turn "+is["turnpike.turn"]+" attempt "+is["turnpike.turn.attempt"])
		}
		slices.Sort(all)
		return all
	}
	s.await(id, "three spans", func(state.State) bool { return len(attempts()) >= 3 })
	if diff := gocmp.Diff([]string{"turn 1 attempt 1", "turn 1 attempt 2", "turn 2 attempt 1"}, attempts()); diff != "" {
		t.Errorf("attempts:\n%s", diff)
	}
}
