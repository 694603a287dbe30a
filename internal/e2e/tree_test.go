package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// ledger counts the requests for each effect, by idempotency key.
type ledger struct {
	mu    sync.Mutex
	times map[string]int
}

func (l *ledger) note(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[key]++
}

// Trees of runs, a batch, and an asynchronous tool run while workers are killed continuously: every run
// completes, no child is missing or duplicated, and no at-most-once effect happens twice (I1, I2, I3, I4, I5,
// I6).
func TestTreesWhileWorkersDie(t *testing.T) {
	t.Parallel()
	const trees, leaves = 40, 60
	s := newDeployment(t, 3)
	once := &ledger{times: map[string]int{}}
	stop, err := toolkit.Serve(s.nats, s.prefix(), toolkit.Tool{Name: "once", Handler: text(func(_ context.Context, r toolkit.Call) (string, error) {
		once.note(r.IdempotencyKey)
		return "done", nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	serveLater(s)
	for name, def := range map[string]string{
		"leaf": `tools: [{name: once, kind: nats}]
model: {provider: scripted, responses: [{tool_calls: [{name: once}], delay: 60ms}, {text: leaf, delay: 60ms}]}`,
		"middle": `tools: [{name: ask, kind: agent, agent: leaf}, {name: later, kind: nats, async: true, idempotent: true}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: ask, arguments: {task: a}}, {name: later}, {name: ask, arguments: {task: b}}], delay: 60ms}
    - {text: middle, delay: 60ms}`,
		"root": `tools: [{name: ask, kind: agent, agent: middle}]
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {task: a}}, {name: ask, arguments: {task: b}}]}, {text: root}]}`,
	} {
		if _, err := s.client.PutAgent(t.Context(), name, []byte(def)); err != nil {
			t.Fatal(err)
		}
	}
	// Not often enough for a turn to lose five workers in a row: that would correctly end its run poisoned.
	killed := killAtRandom(t, s, 900*time.Millisecond)

	roots := make([]string, trees)
	for i := range roots {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "root", Input: json.RawMessage(`"go"`)}, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		roots[i] = run.ID
	}
	batch := api.BatchRequest{MaxParallel: 3}
	for range leaves {
		batch.Runs = append(batch.Runs, api.SubmitRequest{Agent: "leaf", Input: json.RawMessage(`"go"`)})
	}
	accepted, err := s.client.SubmitBatch(t.Context(), batch, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range roots {
		eventually(t, "a tree ends", func() error {
			run, err := s.client.Get(t.Context(), id)
			if err == nil && !run.Terminal() {
				err = fmt.Errorf("tree\n%s", sketchTree(t, s, id, "  "))
			}
			return err
		})
	}
	eventually(t, "the batch ends", func() error {
		b, err := s.client.Batch(t.Context(), accepted.BatchID)
		if err == nil && !b.Done {
			err = fmt.Errorf("it stands at %v", b.Counts)
		}
		return err
	})
	kills := killed()

	count := 0
	var check func(id, agent string)
	check = func(id, agent string) {
		count++
		run, err := s.client.Get(t.Context(), id)
		if err != nil || run.Status != "completed" || run.Agent != agent {
			t.Errorf("run %s of %s is %s (%s), %v", id, run.Agent, run.Status, run.Transition.Detail, err)
			return
		}
		checkHistory(t, s, id)
		below := map[string]string{"root": "middle", "middle": "leaf"}[agent]
		page, err := s.client.List(t.Context(), url.Values{"parent": {id}})
		if err != nil {
			t.Fatal(err)
		}
		if want := len(below) / max(1, len(below)) * 2; len(page.Items) != want {
			t.Errorf("run %s of %s has %d children, want %d", id, agent, len(page.Items), want)
		}
		for _, child := range page.Items {
			check(child.ID, below)
		}
	}
	for _, id := range roots {
		check(id, "root")
	}
	for _, id := range accepted.RunIDs {
		check(id, "leaf")
	}
	for key, n := range once.times {
		if n > 1 {
			t.Errorf("effect %s happened %d times (I4)", key, n)
		}
	}
	t.Logf("%d runs, %d effects, %d workers killed", count, len(once.times), kills)
}

// sketchTree describes the state of a tree's runs.
func sketchTree(t *testing.T, s *deployment, id, indent string) string {
	t.Helper()
	run, err := s.client.Get(t.Context(), id)
	if err != nil {
		return indent + err.Error()
	}
	line := fmt.Sprintf("%s%s %s %s (%s, version %d)", indent, id, run.Agent, run.Status, run.Transition.Reason, run.Version)
	if run.Waiting != nil {
		for _, c := range run.Waiting.Calls {
			line += fmt.Sprintf(" waits for %s %s", c.Tool, c.Needs)
		}
	}
	page, err := s.client.List(t.Context(), url.Values{"parent": {id}})
	if err != nil {
		return line
	}
	for _, child := range page.Items {
		line += "\n" + sketchTree(t, s, child.ID, indent+"  ")
	}
	return line
}

// checkHistory checks a run's transcript and events for I5 and I9.
func checkHistory(t *testing.T, s *deployment, id string) {
	t.Helper()
	messages, err := s.client.Messages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(messages); i++ {
		calls := messages[i].Calls()
		for j, c := range calls {
			if at := i + 1 + j; at >= len(messages) || messages[at].Role != state.RoleTool || messages[at].Parts[0].CallID != c.ID {
				t.Errorf("run %s: call %s has no result after it (I5)", id, c.ID)
			}
		}
		i += len(calls)
	}
	want := int64(1)
	for e, err := range s.client.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			continue
		}
		if e.Seq != want {
			t.Errorf("run %s: event %d where %d is expected (I9)", id, e.Seq, want)
		}
		want++
	}
}

// serveLater is a tool that accepts calls and answers them with a signal.
func serveLater(s *deployment) {
	s.t.Helper()
	var answers sync.WaitGroup
	sub, err := s.nats.Subscribe(toolkit.Subject(s.prefix(), "later"), func(m *nats.Msg) {
		var r toolkit.Call
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return
		}
		answers.Go(func() { answerLater(s, r) })
		_ = m.Respond([]byte(`{"pending": true}`))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = sub.Unsubscribe(); answers.Wait() })
}

// answerLater sends the result until it is accepted; a refusal means that it already was.
func answerLater(s *deployment, r toolkit.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	sig := api.SignalRequest{SignalID: r.IdempotencyKey, ToolResults: []api.ToolResult{{CallID: r.CallID, Content: json.RawMessage(`"later"`)}}}
	for {
		_, err := s.client.Signal(ctx, r.RunID, sig)
		var p *api.Problem
		if err == nil || errors.As(err, &p) && p.Status < 500 || ctx.Err() != nil {
			return
		}
	}
}
