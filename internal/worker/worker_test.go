package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// One run goes through the whole protocol, and its waiting caller receives the result.
func TestRunCompletes(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "42"}, nil })
	var mu sync.Mutex
	var types []string
	stop, err := s.bus.ReadFeed(func(p membus.Published) {
		mu.Lock()
		defer mu.Unlock()
		var ev struct{ Type string }
		if err := json.Unmarshal(p.Event.Data, &ev); err != nil {
			t.Errorf("event %s: %v", p.Event.Data, err)
		}
		types = append(types, ev.Type)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		cfg := s.config()
		cfg.EventFeed = true
		s.work(cfg)
	}
	id := s.create(state.Limits{}, []agent.Tool{{Name: "add"}}, call("add", "c1"), model.Scripted{Text: "it is 42"})
	// The first turn is never published: the sweeper finds it (I2).
	st := s.awaitReason(id, state.EndCompleted)
	if *st.Output != "it is 42" || st.Turn != 2 || st.Version != 3 || st.StartedAt.IsZero() {
		t.Errorf("run = %+v", st)
	}
	if diff := gocmp.Diff([]string{"user: hello", "assistant: c1", "tool: 42", "assistant: it is 42"}, s.transcript(id)); diff != "" {
		t.Errorf("transcript:\n%s", diff)
	}
	s.await(id, "all published", func(state.State) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(types) == 6
	})
	want := []string{"run.submitted", "model.message", "tool.finished", "transition", "model.message", "run.finished"}
	mu.Lock()
	defer mu.Unlock()
	if diff := gocmp.Diff(want, types); diff != "" {
		t.Errorf("events (I9):\n%s", diff)
	}
	s.await(id, "a reply to the submitter", func(state.State) bool { return len(s.bus.Replies("reply.here")) > 0 })
}

// A worker is declared dead while its tool runs. Another resumes the turn with the journaled response and the
// same idempotency key. The first worker's result changes nothing (I3, I8).
func TestTurnIsTakenUp(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, call("slow", "c1"), model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	key := <-slow.started
	if due, err := s.store.Evict(t.Context(), first.ID, 100, time.Millisecond); err != nil || len(due) != 1 {
		t.Fatalf("Evict = %v, %v", due, err)
	}
	s.work(s.config())
	if again := <-slow.started; again != key {
		t.Errorf("idempotency key is %s, was %s", again, key)
	}
	close(slow.release)
	st := s.awaitReason(id, state.EndCompleted)
	if st.Usage.ModelCalls != 2 {
		t.Errorf("model calls = %d, want 2: the first was journaled", st.Usage.ModelCalls)
	}
	if diff := gocmp.Diff([]string{"user: hello", "assistant: c1", "tool: done", "assistant: end"}, s.transcript(id)); diff != "" {
		t.Errorf("transcript (I5):\n%s", diff)
	}
	log, _ := s.store.Log(t.Context(), id, 0, 0)
	recovered := 0
	for _, e := range log {
		if e.Reason == state.Recovered {
			recovered++
			if e.Turn != 1 {
				t.Errorf("the attempt has turn %d, want 1", e.Turn)
			}
		}
	}
	if recovered == 0 {
		t.Error("the log does not record that the turn was recovered")
	}
}

// A tool that may run at most once is not started again; the model reads that the outcome is unknown (I4).
func TestNonIdempotentToolIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["pay"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, call("pay", "c1"), model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	<-slow.started
	if _, err := s.store.Evict(t.Context(), first.ID, 100, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	s.work(s.config())
	s.awaitReason(id, state.EndCompleted)
	close(slow.release)
	if n := slow.calls.Load(); n != 1 {
		t.Errorf("the tool was started %d times, want 1", n)
	}
	if got := s.transcript(id)[2]; got[:len("tool: The outcome of this call is unknown")] != "tool: The outcome of this call is unknown" {
		t.Errorf("result = %q", got)
	}
}

// A waiting run holds no resources, and any worker resumes it (I6, D5, D6).
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	stop := s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "pick", Kind: toolspec.Client, Schema: json.RawMessage(`{"type":"object"}`)}},
		call("pick", "c1"), model.Scripted{Text: "thanks"})
	st := s.awaitReason(id, state.WaitingClientTool)
	if len(st.Waiting.Calls) != 1 || st.Waiting.Calls[0].Tool != "pick" {
		t.Errorf("waiting = %+v", st.Waiting)
	}
	s.await(id, "no message left", func(state.State) bool { n, _ := s.bus.Lag(t.Context()); return n == 0 })
	stop()
	s.work(s.config())
	s.signal(id, state.Signal{ID: "s1", ToolResults: []state.SignalResult{{CallID: "c1", Content: "file.txt"}}})
	s.awaitReason(id, state.EndCompleted)
	if diff := gocmp.Diff([]string{"user: hello", "assistant: c1", "tool: file.txt", "assistant: thanks"}, s.transcript(id)); diff != "" {
		t.Errorf("transcript:\n%s", diff)
	}
}

// A tool that fails in any way gets a result of its own (F2, A7).
func TestToolFailuresBecomeResults(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["ok"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "fine"}, nil })
	s.tools["panics"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { panic("boom") })
	s.tools["hangs"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	})
	s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{
		{Name: "ok"}, {Name: "panics"}, {Name: "hangs", Timeout: model.Duration(time.Millisecond)},
		{Name: "strict", Schema: json.RawMessage(`{"type":"object","required":["x"]}`)},
	}, model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "ok"}, {Name: "panics"}, {Name: "hangs"}, {Name: "strict"}, {Name: "nobody"}}}, model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
	got := s.transcript(id)[2:7]
	want := []string{
		"tool: fine", `tool: Tool "panics" failed: it panicked`, `tool: Tool "hangs" timed out after 1ms`,
		`tool: Invalid arguments for tool "strict"`, "tool: Unknown tool: nobody",
	}
	for i := range want {
		if len(got[i]) < len(want[i]) || got[i][:len(want[i])] != want[i] {
			t.Errorf("result %d = %q, want %q", i, got[i], want[i])
		}
	}
}

// A turn that never commits ends the run instead of killing workers forever.
func TestPoisonedTurn(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.model = provider(func(context.Context, model.Request) (model.Response, error) { panic("this turn kills its worker") })
	cfg := s.config()
	cfg.LeaseDuration, cfg.MaxAttempts = 60*time.Millisecond, 2
	s.work(cfg)
	id := s.submit(state.Limits{}, nil, model.Scripted{})
	st := s.awaitReason(id, state.EndPoisoned)
	if st.Error == nil || st.Error.Code != "poisoned" {
		t.Errorf("error = %+v", st.Error)
	}
	// The message is dead-lettered with the cause.
	s.await(id, "parked", func(state.State) bool {
		letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Run == id
	})
}

type provider func(context.Context, model.Request) (model.Response, error)

func (p provider) Generate(ctx context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	return p(ctx, r)
}

// A worker that shuts down releases its turns without counting an attempt.
func TestShutdownReleases(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, call("slow", "c1"), model.Scripted{Text: "end"})
	stop := s.work(s.config())
	<-slow.started
	stop()
	if st, _ := s.store.Load(t.Context(), id); st.Status != state.Queued {
		t.Fatalf("run is %s after the shutdown, want queued", st.Status)
	}
	s.work(s.config())
	<-slow.started
	close(slow.release)
	s.awaitReason(id, state.EndCompleted)
	log, _ := s.store.Log(t.Context(), id, 0, 0)
	for _, e := range log {
		if e.Reason == state.Recovered || e.Attempt > 1 {
			t.Errorf("entry %d counts an attempt: %s %d", e.Seq, e.Reason, e.Attempt)
		}
	}
}

// quickHeartbeats lets a worker that is alone notice a dead one soon.
const quickHeartbeats = 20 * time.Millisecond

// The other workers take the turns of a worker that stops sending heartbeats at once.
func TestUnreachableWorkerIsEvicted(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.create(state.Limits{}, nil, model.Scripted{Text: "hi"})
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "dead", Worker: "dead", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	listens := make(chan struct{})
	once := sync.OnceFunc(func() { close(listens) })
	unsubscribe, err := s.bus.Heartbeats(t.Context(), func(bus.Heartbeat) { once() })
	if err != nil {
		t.Fatal(err)
	}
	defer unsubscribe()
	cfg := s.config()
	cfg.HeartbeatInterval = quickHeartbeats
	s.work(cfg)
	<-listens
	s.bus.SendHeartbeat(bus.Heartbeat{Worker: "dead"}) // and never again
	s.awaitReason(id, state.EndCompleted)
}

// Duplicate, stale and unknown messages cost time but have no effect (I1).
func TestMessagesAreOnlyHints(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "t"}}, call("t", "c1"), call("t", "c2"), model.Scripted{Text: "end"})
	var calls atomic.Int64
	s.tools["t"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		calls.Add(1)
		return tool.Result{Content: "ok"}, nil
	})
	for i := range 20 {
		for v := range int64(5) {
			if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: v, Priority: state.High}, fmt.Sprint(id, v, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		s.work(s.config())
	}
	st := s.awaitReason(id, state.EndCompleted)
	if st.Version != 4 || st.Usage.ModelCalls != 3 || calls.Load() != 2 {
		t.Errorf("version %d, %d model calls, %d tool calls; want 4, 3, 2", st.Version, st.Usage.ModelCalls, calls.Load())
	}
}

// A third-party loop needs only its name in the registry (D10).
func TestThirdPartyLoop(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	def := []byte(`{"name":"echo","model":{"provider":"scripted"},"loop":{"type":"echo"}}`)
	v, err := s.store.PutAgent(t.Context(), state.DefaultTenant, "echo", def, false)
	if err != nil {
		t.Fatal(err)
	}
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: state.DefaultTenant, Agent: "echo", AgentVersion: v.Version, Loop: "echo", Priority: state.Low, Limits: state.Limits{MaxTurns: 1}}
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.Loops = loop.Builtin()
	cfg.Loops["echo"] = func(*agent.Agent) loop.Loop { return echo{} }
	s.work(cfg)
	if st := s.awaitReason(run.ID, state.EndCompleted); *st.Output != "hi" {
		t.Errorf("output = %q", *st.Output)
	}
}

type echo struct{}

func (echo) Step(s state.State, ev loop.Event) loop.Decision {
	text := s.Log[0].Messages[0].Text()
	next, err := s.Move(state.EndCompleted, state.Entry{At: ev.(loop.TurnBegan).At, Output: &text})
	if err != nil {
		panic(err)
	}
	return loop.Decision{Next: &next}
}

// The turns of a worker that died before any other listened are also taken over.
func TestUnheardWorkerIsEvicted(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.create(state.Limits{}, nil, model.Scripted{Text: "hi"})
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "dead", Worker: "dead", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	cfg := s.config()
	cfg.HeartbeatInterval = quickHeartbeats
	s.work(cfg)
	s.awaitReason(id, state.EndCompleted)
}
