package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a store, a bus and workers in one process.
type site struct {
	t     *testing.T
	store state.Store
	bus   *membus.Bus
	tools map[string]tool.Tool
	model model.Provider
	n     int
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, store: memstore.New(memstore.Config{}), bus: membus.New(), tools: map[string]tool.Tool{}, model: scripted.New()}
}

func (s *site) config() worker.Config {
	s.n++
	return worker.Config{
		ID: fmt.Sprintf("w%d", s.n), Providers: map[string]model.Provider{"scripted": s.model}, Tools: s.tools, Logger: zerolog.Nop(),
		SweepEvery: 10 * time.Millisecond, Grace: 50 * time.Millisecond, BeatEvery: 20 * time.Millisecond, ShutdownGrace: 20 * time.Millisecond,
	}
}

// work runs a worker until the returned stop, or the test's end.
func (s *site) work(cfg worker.Config) (stop func()) {
	s.t.Helper()
	return s.workOn(s.store, cfg)
}

func (s *site) workOn(store state.Store, cfg worker.Config) (stop func()) {
	s.t.Helper()
	return s.workWith(store, s.bus, cfg)
}

func (s *site) grace() time.Duration { return 50 * time.Millisecond }

func (s *site) workWith(store state.Store, b bus.Bus, cfg worker.Config) (stop func()) {
	s.t.Helper()
	w, err := worker.New(store, b, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// submit stores and publishes a run of an agent with these responses and tools.
func (s *site) submit(limits state.Limits, tools []agent.Tool, responses ...model.Scripted) state.RunID {
	s.t.Helper()
	return s.start(s.create(limits, tools, responses...))
}

// submitTo is submit for any agent.
func (s *site) submitTo(def agent.Definition) state.RunID {
	s.t.Helper()
	return s.start(s.createFor(def, state.Limits{}))
}

func (s *site) start(id state.RunID) state.RunID {
	s.t.Helper()
	if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *site) create(limits state.Limits, tools []agent.Tool, responses ...model.Scripted) state.RunID {
	s.t.Helper()
	return s.createFor(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: responses}, Tools: tools}, limits)
}

func (s *site) createFor(definition agent.Definition, limits state.Limits) state.RunID {
	s.t.Helper()
	return s.createAs(definition, limits, "")
}

// createStreaming stores a run whose pieces of responses are shown.
func (s *site) createStreaming(definition agent.Definition) state.RunID {
	s.t.Helper()
	return s.createAs(definition, state.Limits{}, "deltas")
}

func (s *site) createAs(definition agent.Definition, limits state.Limits, stream string) state.RunID {
	s.t.Helper()
	def, err := json.Marshal(definition)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.store.PutAgent(s.t.Context(), definition.Name, def)
	if err != nil {
		s.t.Fatal(err)
	}
	if limits.MaxTurns == 0 {
		limits.MaxTurns = 20
	}
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: definition.Name, AgentVersion: v.Version, Loop: cmp.Or(definition.Loop.Type, "react"), Tenant: "default",
		Priority: state.Normal, Limits: limits, ReplyTo: "reply.here", Stream: stream,
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := s.store.Create(s.t.Context(), state.NewRun{State: run, Grace: 50 * time.Millisecond}); err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// await polls until the run satisfies ok.
func (s *site) await(id state.RunID, what string, ok func(state.State) bool) state.State {
	s.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := s.store.Load(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if ok(st) {
			return st
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			s.t.Fatalf("run %s is %s (%s), want %s", id, st.Status, st.Transition.Reason, what)
		}
	}
}

func (s *site) awaitReason(id state.RunID, want state.Reason) state.State {
	s.t.Helper()
	return s.await(id, string(want), func(st state.State) bool {
		return st.Transition.Reason == want && st.Status != state.Running && st.Status != state.Queued
	})
}

func (s *site) signal(id state.RunID, sig state.Signal) {
	s.t.Helper()
	w, err := s.store.Signal(s.t.Context(), id, sig, 50*time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	if w.Publish {
		if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: w.Version, Priority: w.Priority}, fmt.Sprintf("%s:%d", id, w.Version)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) transcript(id state.RunID) []string {
	s.t.Helper()
	log, err := s.store.Log(s.t.Context(), id, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, e := range log {
		if e.Seq != int64(i+1) {
			s.t.Errorf("entry %d has number %d (I9)", i+1, e.Seq)
		}
	}
	var lines []string
	for _, m := range state.View(log) {
		line := string(m.Role) + ":"
		for _, p := range m.Parts {
			line += " " + p.Text + p.Content
			if p.Type == state.PartToolCall {
				line += p.ID
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func call(name, id string) model.Scripted {
	return model.Scripted{ToolCalls: []model.ScriptedCall{{ID: id, Name: name}}}
}

// blocking is a tool that tells when it starts and ends when it is let go or its
// context ends.
type blocking struct {
	started chan string
	release chan struct{}
	calls   atomic.Int64
}

func newBlocking() *blocking {
	return &blocking{started: make(chan string, 10), release: make(chan struct{})}
}

func (b *blocking) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	b.calls.Add(1)
	b.started <- c.IdempotencyKey
	select {
	case <-b.release:
		return tool.Result{Content: "done"}, nil
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
}

// The whole protocol on one run, and who waits for it is told.
func TestRunCompletes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "42"}, nil })
	s.work(s.config())
	s.work(s.config())
	var mu sync.Mutex
	var types []string
	id := s.create(state.Limits{}, []agent.Tool{{Name: "add"}}, call("add", "c1"), model.Scripted{Text: "it is 42"})
	stop, err := s.bus.Watch(t.Context(), id, func(e bus.Event) {
		mu.Lock()
		defer mu.Unlock()
		var ev struct{ Type string }
		if err := json.Unmarshal(e.Data, &ev); err != nil {
			t.Errorf("event %s: %v", e.Data, err)
		}
		if e.Seq > 0 {
			types = append(types, ev.Type)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// Nobody publishes the first turn: the sweeper finds it (I2).
	st := s.awaitReason(id, state.EndCompleted)
	if *st.Output != "it is 42" || st.Turn != 2 || st.Version != 3 || st.StartedAt.IsZero() {
		t.Errorf("run = %+v", st)
	}
	if diff := gocmp.Diff([]string{"user: hello", "assistant: c1", "tool: 42", "assistant: it is 42"}, s.transcript(id)); diff != "" {
		t.Errorf("transcript:\n%s", diff)
	}
	s.await(id, "announced", func(state.State) bool {
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

// I3, I8: a worker is declared gone while its tool runs. Another takes the turn
// up with the journaled response and the same idempotency key; the first one's
// result changes nothing.
func TestTurnIsTakenUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	slow := newBlocking()
	s.tools["slow"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow", Idempotent: true}}, call("slow", "c1"), model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	key := <-slow.started
	if due, err := s.store.Evict(t.Context(), first.ID, time.Millisecond); err != nil || len(due) != 1 {
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
		}
	}
	if recovered == 0 {
		t.Error("the log does not tell that the turn was recovered")
	}
}

// I4: a tool that may run once is not started again; the model is told that the
// outcome is unknown.
func TestNonIdempotentToolIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	slow := newBlocking()
	s.tools["pay"] = slow
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "pay"}}, call("pay", "c1"), model.Scripted{Text: "end"})
	first := s.config()
	s.work(first)
	<-slow.started
	if _, err := s.store.Evict(t.Context(), first.ID, time.Millisecond); err != nil {
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

func (s *site) abort(id state.RunID) {
	s.t.Helper()
	wake, err := s.store.Abort(s.t.Context(), id, "enough", time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.bus.PublishAbort(s.t.Context(), bus.Abort{Run: id, Reason: "enough", Version: wake.Version}); err != nil {
		s.t.Fatal(err)
	}
}

// I6, D5, D6: a waiting run holds nothing, and any worker resumes it.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.work(s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "pick", Kind: agent.KindClient, Schema: json.RawMessage(`{"type":"object"}`)}},
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

// F2, A7: whatever a tool does becomes its own result.
func TestToolFailuresBecomeResults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
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

// A turn that never commits ends the run instead of killing workers for ever.
func TestPoisonedTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.model = provider(func(context.Context, model.Request) (model.Response, error) { panic("this turn kills its worker") })
	cfg := s.config()
	cfg.Lease, cfg.MaxAttempts = 60*time.Millisecond, 2
	s.work(cfg)
	id := s.submit(state.Limits{}, nil, model.Scripted{})
	st := s.awaitReason(id, state.EndPoisoned)
	if st.Error == nil || st.Error.Code != "poisoned" {
		t.Errorf("error = %+v", st.Error)
	}
	// The message is parked with the cause.
	s.await(id, "parked", func(state.State) bool {
		letters, err := s.bus.DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Run == id
	})
}

type provider func(context.Context, model.Request) (model.Response, error)

func (p provider) Generate(ctx context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	return p(ctx, r)
}

// A worker that shuts down hands its turns back without counting an attempt.
func TestShutdownHandsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
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

// A worker that falls silent loses its turns to the others at once.
func TestSilentWorkerIsEvicted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.create(state.Limits{}, nil, model.Scripted{Text: "hi"})
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "dead", Worker: "dead", Lease: time.Hour, Grace: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	listens := make(chan struct{})
	once := sync.OnceFunc(func() { close(listens) })
	unsubscribe, err := s.bus.Beats(t.Context(), func(string, bool) { once() })
	if err != nil {
		t.Fatal(err)
	}
	defer unsubscribe()
	s.work(s.config())
	<-listens
	s.bus.Beat("dead", false) // and never again
	s.awaitReason(id, state.EndCompleted)
}

// Doubled, stale and unknown messages cost time and nothing else (I1).
func TestMessagesAreOnlyHints(t *testing.T) {
	t.Parallel()
	s := newSite(t)
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

// D10: a loop of a third party needs nothing but its name in the registry.
func TestThirdPartyLoop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	def := []byte(`{"name":"echo","model":{"provider":"scripted"},"loop":{"type":"echo"}}`)
	v, err := s.store.PutAgent(t.Context(), "echo", def)
	if err != nil {
		t.Fatal(err)
	}
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "echo", AgentVersion: v.Version, Loop: "echo", Priority: state.Low, Limits: state.Limits{MaxTurns: 1}}
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.store.Create(t.Context(), state.NewRun{State: run}); err != nil {
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
	return loop.Decision{Next: next}
}

// So do those of a worker that died before any of the others listened.
func TestUnheardWorkerIsEvicted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.create(state.Limits{}, nil, model.Scripted{Text: "hi"})
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "dead", Worker: "dead", Lease: time.Hour, Grace: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	s.work(s.config())
	s.awaitReason(id, state.EndCompleted)
}
