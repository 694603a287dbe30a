package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A Go tool that ignores its context blocks nothing: the turn continues, the worker counts the call, and
// reports too many of them.
func TestToolIgnoresItsTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		release := make(chan struct{})
		s.tools["deaf"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
			<-release
			return tool.Result{Content: "late"}, nil
		})
		cfg := s.config()
		cfg.MaxAbandoned, cfg.Registry = 1, prometheus.NewRegistry()
		w, err := worker.New(s.store, s.bus, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.run(w)
		deaf := []agent.Tool{{Name: "deaf", Timeout: model.Duration(200 * time.Millisecond)}}
		for i := range 2 {
			id := s.submit(state.Limits{}, deaf, call("deaf", "c1"), model.Scripted{Text: "done"})
			st := s.awaitReason(id, state.EndCompleted)
			if told := strings.Join(s.transcript(id), "\n"); !strings.Contains(told, "timed out after 200ms") {
				t.Errorf("run %s is %s, the model read %q", id, st.Status, told)
			}
			if err := w.Ready(t.Context()); i == 0 && err != nil {
				t.Errorf("a worker with the one abandoned call that is allowed reports %v", err)
			}
		}
		if n := gauge(t, cfg.Registry, "turnpike_abandoned_calls"); n != 2 {
			t.Errorf("turnpike_abandoned_calls is %v", n)
		}
		if err := w.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "2 calls") {
			t.Errorf("a worker with two abandoned calls, of which one is allowed, reports %v", err)
		}
		close(release)
		synctest.Wait()
		if err := w.Ready(t.Context()); err != nil {
			t.Errorf("after the calls have returned it reports %v", err)
		}
	})
}

func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// stuck is a provider that ignores its context, and streams after its caller has left.
type stuck struct{ release chan struct{} }

func (p stuck) Generate(_ context.Context, _ model.Request, onDelta func(model.Delta)) (model.Response, error) {
	<-p.release
	if onDelta != nil {
		onDelta(model.Delta{Text: "late"})
	}
	return model.Response{}, nil
}

// A provider that ignores its context blocks nothing either.
func TestModelIgnoresItsTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		p := stuck{make(chan struct{})}
		defer close(p.release)
		s.model = p
		s.work(s.config())
		id := s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Timeout: model.Duration(time.Second), Responses: []model.Scripted{{Text: "done"}}}})
		s.await(id, "tried again later", func(st state.State) bool { return st.Status == state.Waiting })
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(log)
		if err != nil || !strings.Contains(string(b), "(timeout)") {
			t.Errorf("the log says %s, %v", b, err)
		}
	})
}

// A tool that gives up on an operation of its own within the time limit of the call has failed, not timed out.
func TestToolTimesOutInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.tools["patient"] = tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			limit := time.Now().Add(time.Second)
			if string(c.Arguments) != "{}" {
				limit = c.Deadline
			}
			inner, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
			defer cancel()
			<-inner.Done()
			return tool.Result{}, fmt.Errorf("the database does not answer: %w", inner.Err())
		})
		s.work(s.config())
		tools := []agent.Tool{{Name: "patient", Timeout: model.Duration(time.Minute)}}
		for _, c := range []struct{ arguments, want, not string }{
			{`{}`, "the database does not answer: context deadline exceeded", "timed out"},
			{`{"until": "the deadline"}`, "timed out after 1m0s", "the database"},
		} {
			asked := model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "c1", Name: "patient", Arguments: json.RawMessage(c.arguments)}}}
			id := s.submit(state.Limits{}, tools, asked, model.Scripted{Text: "done"})
			s.awaitReason(id, state.EndCompleted)
			if told := strings.Join(s.transcript(id), "\n"); !strings.Contains(told, c.want) || strings.Contains(told, c.not) {
				t.Errorf("with %s the model was told %q, want %q", c.arguments, told, c.want)
			}
		}
	})
}
