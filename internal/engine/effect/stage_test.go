package effect_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/internal/engine/turn"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 10 * time.Second

// stage is a claimed turn on a store and a bus in memory. The test acts as the turn: it passes the loop's
// effects to the performer, and the performer's events to the loop.
type stage struct {
	t     *testing.T
	store *memstore.Store
	tools map[string]tool.Tool
	hooks map[string]hook.Hook
	model model.Provider
	cfg   effect.Config // changes of the defaults

	*effect.Performer

	ctx     context.Context // of the turn
	loop    loop.Loop
	agent   *agent.Agent
	s       state.State
	claim   *state.Claim
	journal turn.Journal
	turn    effect.Turn
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{t: t, store: memstore.New(memstore.Config{}), tools: map[string]tool.Tool{}, hooks: map[string]hook.Hook{}, model: scripted.New()}
}

// delivery is the turn's message, which no test answers.
type delivery struct{ run state.RunID }

func (d delivery) Turn() bus.Turn    { return bus.Turn{Run: d.run, Version: 1} }
func (d delivery) InProgress() error { return nil }

// open stores a run of a scripted agent with these responses, and claims its first turn.
func (s *stage) open(def agent.Definition, responses ...model.Scripted) {
	s.t.Helper()
	def.Name, def.Model.Provider, def.Model.Responses = "a", "scripted", responses
	encoded, err := json.Marshal(def)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.store.PutAgent(s.t.Context(), state.DefaultTenant, "a", encoded, false)
	if err != nil {
		s.t.Fatal(err)
	}
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: v.Version, Loop: "react", Tenant: state.DefaultTenant,
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20},
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
	if err == nil {
		_, err = s.store.Create(s.t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.claimTurn(run.ID, "t1")
}

// claimTurn claims the turn of a run with a new performer, as another worker does.
func (s *stage) claimTurn(run state.RunID, token string) {
	s.t.Helper()
	var err error
	s.claim, err = s.store.Claim(s.t.Context(), state.ClaimRequest{Run: run, Version: 1, Token: token, Worker: token, Lease: lease, RedeliveryDelay: time.Second})
	if err != nil || s.claim.Outcome != state.Claimed {
		s.t.Fatalf("claim: %s, %v", s.claim.Outcome, err)
	}
	ctx, cancel := context.WithCancelCause(s.t.Context())
	s.t.Cleanup(func() { cancel(nil) })
	s.ctx = ctx
	l := upkeep.NewLease(s.claim.Lease, state.DefaultTenant, delivery{run}, false, cancel)
	s.perform()
	if s.agent, err = s.cfg.Agents.Get(ctx, state.DefaultTenant, "a", s.claim.State.AgentVersion); err != nil {
		s.t.Fatal(err)
	}
	s.s = *s.claim.State
	s.s.Log = s.s.Log[:s.claim.Base]
	for _, e := range s.claim.State.Log[s.claim.Base:] {
		s.s = s.s.Append(e) // of an earlier attempt
	}
	if s.loop, err = s.cfg.Agents.Loop(ctx, &s.s); err != nil {
		s.t.Fatal(err)
	}
	s.journal = turn.NewJournal(s.store, l, turn.JournalConfig{
		Attempt: s.claim.Attempt, Length: s.s.LogLen(), Timeout: lease / 2, Outlive: outlive, Readers: s, Log: slog.New(slog.DiscardHandler),
	})
	s.turn = effect.Turn{Run: &s.s, Attempt: s.claim.Attempt, Starts: s.claim.Journal.Starts, Journal: &s.journal, Lease: l}
	s.t.Cleanup(s.turn.End)
}

func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// perform creates the performer.
func (s *stage) perform() {
	s.t.Helper()
	log, calls, b := slog.New(slog.DiscardHandler), &timelimit.Calls{}, membus.New()
	c := s.cfg
	c.Worker, c.Clock, c.Calls, c.Registry, c.Log = "w1", &clock.Clock{}, calls, prometheus.NewRegistry(), log
	c.Random = random.Source{R: zeros{}}
	c.Models.Providers = map[string]model.Provider{"scripted": s.model}
	c.Models.Prices, c.Models.Prompt, c.Models.Output = model.DefaultPrices(), 1<<20, 1<<20
	c.Tools.Kinds, c.Tools.Output, c.Tools.MaxResult, c.Tools.Answers = toolspec.Kinds(s.tools), 128<<10, tool.MaxResult, admission.NewAnswers(256<<20)
	c.Tools.ProbeMargin, c.Tools.ProbeRetry = time.Second, time.Second
	c.Hooks = hookspec.Kinds(s.hooks)
	c.Quotas, c.Live = s.store, b
	c.Leases = upkeep.NewLeases(s.store, upkeep.Periods{Lease: lease}, false, log)
	c.Agents = definition.New(s.store, definition.Config{
		Kinds: c.Tools.Kinds, Hooks: c.Hooks, Providers: c.Models.Providers, Loops: loop.Builtin(), Patience: time.Second, Calls: calls, Log: log,
	})
	p, err := effect.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	watchers, err := b.Watchers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(watchers.Stop)
	p.Start(s.t.Context(), watchers)
	s.t.Cleanup(p.Wait)
	s.cfg, s.Performer = c, p
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// LogGrown passes the journal's reports to the performer, as a turn does.
func (s *stage) LogGrown(ctx context.Context, _, length int64) {
	s.Recorded(ctx, &s.turn, s.s.Log[:length])
}

// begin starts the turn in the loop.
func (s *stage) begin() loop.Effect {
	s.t.Helper()
	return s.step(loop.TurnBegan{At: state.At(time.Now()), Worker: "w1", Attempt: s.claim.Attempt})
}

// step passes an event to the loop and returns the next effect.
func (s *stage) step(ev loop.Event) loop.Effect {
	d := s.loop.Step(s.s, ev)
	s.s = *d.Next
	return d.Effect
}

// do executes an effect.
func (s *stage) do(e loop.Effect) loop.Event {
	s.t.Helper()
	ev, err := s.Do(s.ctx, &s.turn, e)
	if err != nil {
		s.t.Fatalf("%T: %v", e, err)
	}
	return ev
}

// respond executes the model call that starts the turn, and returns the effect that follows.
func (s *stage) respond() loop.Effect {
	s.t.Helper()
	return s.step(s.do(s.begin()))
}

// record returns the run as stored.
func (s *stage) record() (r record.Record) {
	s.t.Helper()
	if err := s.store.Snapshot().Record(s.s.ID, &r); err != nil {
		s.t.Error(err)
	}
	return r
}

// responded reports whether the stored log has a response with a call.
func (s *stage) responded(call string) bool {
	s.t.Helper()
	log, err := s.store.Snapshot().Log(s.s.ID)
	if err != nil {
		s.t.Error(err)
	}
	return slices.ContainsFunc(log, func(e state.Entry) bool {
		return e.Type == state.EntryModel && slices.ContainsFunc(e.Message.Calls(), func(p state.Part) bool { return p.ID == call })
	})
}

// has reports whether the store has the result of a call.
func (s *stage) has(call string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.record().Results, func(e state.Entry) bool { return e.CallID == call })
}

// calls returns a response that calls a tool, once for each id.
func calls(name string, ids ...string) model.Scripted {
	var s model.Scripted
	for _, id := range ids {
		s.ToolCalls = append(s.ToolCalls, model.ScriptedCall{ID: id, Name: name, Arguments: json.RawMessage(`{"to":"` + id + `"}`)})
	}
	return s
}

func named(name string) []agent.Hook {
	return []agent.Hook{{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: name})}}
}

// returns is a tool that returns content at once.
func returns(content string) tool.Tool {
	return tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: content}, nil })
}
