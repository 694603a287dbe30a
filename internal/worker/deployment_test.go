package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed/plain"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// always turns every optimization on, whatever its conditions in production. `make test-plain` sets it.
var always = os.Getenv("TURNPIKE_TEST_ALWAYS") != ""

// redelivery returns the redelivery delay of workers: a short one for tests, or one that permits eager claims.
func redelivery() time.Duration {
	if always {
		return 4 * time.Second
	}
	return 50 * time.Millisecond
}

// deployment is a store, a bus and workers in one process.
type deployment struct {
	t     *testing.T
	store state.Store
	bus   *membus.Bus
	tools map[string]tool.Tool
	model model.Provider
	n     int

	tenant string // of new runs; empty: the default one
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	return &deployment{t: t, store: memstore.New(memstore.Config{}), bus: membus.New(), tools: map[string]tool.Tool{}, model: scripted.New()}
}

// config returns the configuration of another worker. Its heartbeats are slow, so that on a busy machine no
// worker takes another for dead and no call is repeated.
func (s *deployment) config() worker.Config {
	s.n++
	return worker.Config{
		ID: fmt.Sprintf("w%d", s.n), Providers: map[string]model.Provider{"scripted": s.model}, Kinds: toolspec.Kinds(s.tools),
		Without: plain.Without(), SweepInterval: 10 * time.Millisecond, RedeliveryDelay: redelivery(), HeartbeatInterval: time.Second, ShutdownGrace: 20 * time.Millisecond, LateResults: 30 * time.Millisecond,
	}
}

// work runs a worker until stop is called or the test ends.
func (s *deployment) work(cfg worker.Config) (stop func()) {
	s.t.Helper()
	return s.workOn(s.store, cfg)
}

func (s *deployment) workOn(store state.Store, cfg worker.Config) (stop func()) {
	s.t.Helper()
	return s.workWith(store, s.bus, cfg)
}

func (s *deployment) delay() time.Duration { return 50 * time.Millisecond }

func (s *deployment) workWith(store state.Store, b bus.Bus, cfg worker.Config) (stop func()) {
	s.t.Helper()
	w, err := worker.New(store, b, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	if always {
		w.ClaimEagerly()
	}
	return s.run(w)
}

// run runs a worker until stop is called or the test ends. stop may be called concurrently: it waits on a channel,
// because a goroutine that waits for a lock, such as that of a sync.Once, stops the clock of a synctest bubble.
func (s *deployment) run(w *worker.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(stop)
	return stop
}

// createLater stores a run that starts at the given time of the store's clock.
func (s *deployment) createLater(at state.Time) state.RunID {
	s.t.Helper()
	def, err := json.Marshal(agent.Definition{Name: "later", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "done"}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.store.PutAgent(s.t.Context(), state.DefaultTenant, "later", def, false)
	if err != nil {
		s.t.Fatal(err)
	}
	now, input := state.At(time.Now()), state.UserText("hello")
	input.ID = "msg_1_0"
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "later", AgentVersion: v.Version, Loop: "react", Tenant: "default",
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, ResumeAt: at,
	}
	run, err = run.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{input}})
	if err == nil {
		run, err = run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: "start_at", Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, ExpiresAt: at, Calls: []state.WaitCall{}}})
	}
	if err == nil {
		_, err = s.store.Create(s.t.Context(), state.NewRun{State: run, RedeliveryDelay: 50 * time.Millisecond})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// submit stores and publishes a run of an agent with these responses and tools.
func (s *deployment) submit(limits state.Limits, tools []agent.Tool, responses ...model.Scripted) state.RunID {
	s.t.Helper()
	return s.start(s.create(limits, tools, responses...))
}

// submitTo is submit for any agent.
func (s *deployment) submitTo(def agent.Definition) state.RunID {
	s.t.Helper()
	return s.start(s.createFor(def, state.Limits{}))
}

func (s *deployment) start(id state.RunID) state.RunID {
	s.t.Helper()
	if err := s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *deployment) create(limits state.Limits, tools []agent.Tool, responses ...model.Scripted) state.RunID {
	s.t.Helper()
	return s.createFor(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted", Responses: responses}, Tools: tools}, limits)
}

func (s *deployment) createFor(definition agent.Definition, limits state.Limits) state.RunID {
	s.t.Helper()
	return s.createAs(definition, limits, "")
}

// createStreaming stores a run that streams its responses.
func (s *deployment) createStreaming(definition agent.Definition) state.RunID {
	s.t.Helper()
	return s.createAs(definition, state.Limits{}, "deltas")
}

func (s *deployment) createAs(definition agent.Definition, limits state.Limits, stream string) state.RunID {
	s.t.Helper()
	def, err := json.Marshal(definition)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.store.PutAgent(s.t.Context(), cmp.Or(s.tenant, state.DefaultTenant), definition.Name, def, true)
	if err != nil {
		s.t.Fatal(err)
	}
	if limits.MaxTurns == 0 {
		limits.MaxTurns = 20
	}
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: definition.Name, AgentVersion: v.Version, Loop: cmp.Or(definition.Loop.Type, "react"), Tenant: cmp.Or(s.tenant, state.DefaultTenant),
		Priority: state.Normal, Limits: limits, ReplyTo: "reply.here", Stream: stream,
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.Create(s.t.Context(), state.NewRun{State: run, RedeliveryDelay: 50 * time.Millisecond}); err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// await polls until the run satisfies ok.
func (s *deployment) await(id state.RunID, what string, ok func(state.State) bool) state.State {
	s.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
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

func (s *deployment) awaitReason(id state.RunID, want state.Reason) state.State {
	s.t.Helper()
	return s.await(id, string(want), func(st state.State) bool {
		return st.Transition.Reason == want && st.Status != state.Running && st.Status != state.Queued
	})
}

func (s *deployment) signal(id state.RunID, sig state.Signal) {
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

func (s *deployment) abort(id state.RunID) {
	s.t.Helper()
	by := &state.By{Principal: "ada", Tenant: state.DefaultTenant, Via: "key"}
	wake, err := s.store.Abort(s.t.Context(), id, state.Abort{Reason: "enough", By: by}, time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.bus.PublishAbort(s.t.Context(), bus.Abort{Run: id, Reason: "enough", Version: wake.Version}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *deployment) transcript(id state.RunID) []string {
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

// blocking is a tool that reports its start and returns when it is released or its context ends.
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
