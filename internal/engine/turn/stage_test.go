package turn_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
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

// stage is a turn taker on a store and a bus in memory. Steps are the turns' writes to the store and messages
// to the bus, in order.
type stage struct {
	t     *testing.T
	store *memstore.Store
	bus   *membus.Bus
	queue bus.TurnQueue
	tools map[string]tool.Tool
	hooks map[string]hook.Hook
	model model.Provider
	loops loop.Registry
	limit model.RateLimits
	id    state.RunID
	steps []string
	fail  map[string]error // error of the next step with a name; the step still takes effect
	log   *slog.Logger     // of the taker

	commit    state.Commit // the latest one
	committed func()       // called after each commit, if it is not nil

	late       time.Duration // Periods.LateResults; 0 means that no turn waits for them
	quarantine *admission.Quarantine

	webhook *state.Webhook // of the run
	eager   int64          // the version of the latest eager claim, which the store serves from memory
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, store: memstore.New(memstore.Config{}), bus: membus.New(), tools: map[string]tool.Tool{}, hooks: map[string]hook.Hook{},
		model: scripted.New(), loops: loop.Builtin(), fail: map[string]error{}, log: slog.New(slog.DiscardHandler),
	}
	var err error
	if s.queue, err = s.bus.Turns(t.Context(), bus.QueueKey{Lane: state.Normal}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.queue.Close() })
	return s
}

// note adds a step and returns its error.
func (s *stage) note(step string) error {
	s.steps = append(s.steps, step)
	err := s.fail[step]
	delete(s.fail, step)
	return err
}

// store is the store of the taker.
type store struct {
	state.Store

	s *stage
}

func (w store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	c, err := w.Store.Claim(ctx, r)
	if w.s.eager == r.Version {
		c.FinalizedSeq = 0
	}
	if failed := w.s.note("claim"); failed != nil {
		return nil, failed
	}
	return c, err
}

func (w store) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	abort, err := w.Store.Record(ctx, l, r)
	if failed := w.s.note("record"); failed != nil {
		return nil, failed
	}
	return abort, err
}

func (w store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	done, err := w.Store.Commit(ctx, l, c)
	w.s.commit = c
	if done.Claimed {
		w.s.eager = done.Version
	}
	if err == nil && w.s.committed != nil {
		w.s.committed()
	}
	if failed := w.s.note("commit"); failed != nil {
		return state.Committed{}, failed
	}
	return done, err
}

func (w store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	err := w.Store.Release(ctx, l, delay)
	if failed := w.s.note("release"); failed != nil {
		return failed
	}
	return err
}

// wire is the bus of the taker.
type wire struct {
	*membus.Bus

	s *stage
}

func (w wire) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if failed := w.s.note("publish"); failed != nil {
		return failed
	}
	return w.Bus.PublishTurn(ctx, t, id)
}

// answered is a delivery whose answer is a step.
type answered struct {
	bus.TurnDelivery

	s *stage
}

func (d answered) Ack() error {
	_ = d.s.note("ack")
	return d.TurnDelivery.Ack()
}

func (d answered) Nak(delay time.Duration) error {
	_ = d.s.note("nak")
	return d.TurnDelivery.Nak(delay)
}

// submit stores and publishes a run of a scripted agent.
func (s *stage) submit(def agent.Definition, responses ...model.Scripted) {
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
	s.id = state.RunID(state.RunPrefix + ulid.Make().String())
	run := state.State{
		ID: s.id, Agent: "a", AgentVersion: v.Version, Loop: "react", Tenant: state.DefaultTenant,
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Webhook: s.webhook,
	}
	if def.Loop.Type != "" {
		run.Loop = def.Loop.Type
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
	if err == nil {
		_, err = s.store.Create(s.t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Second})
	}
	if err == nil {
		err = s.bus.PublishTurn(s.t.Context(), bus.Turn{Run: s.id, Version: 1, Priority: state.Normal}, string(s.id)+":1")
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// next takes the next turn from the queue, as a worker does. ctx ends the turn.
func (s *stage) next(ctx context.Context, worker string) {
	s.t.Helper()
	s.nextOf(ctx, s.taker(worker))
}

// nextOf makes a taker take the next turn from the queue.
func (s *stage) nextOf(ctx context.Context, k *turn.Taker) {
	s.t.Helper()
	d, err := s.queue.Next(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	load := admission.NewTenants(10, 10).Enter(state.DefaultTenant, false)
	defer load.Leave()
	k.Take(ctx, answered{d, s}, load)
}

// taker returns the taker of a worker that claims nothing eagerly.
func (s *stage) taker(worker string) *turn.Taker {
	s.t.Helper()
	k, _ := s.takerOf(worker, time.Second, names(worker))
	return k
}

// takerOf returns the taker of a worker, and its leases. It may claim eagerly if its redelivery delay is long
// enough.
func (s *stage) takerOf(worker string, redelivery time.Duration, tokens io.Reader) (*turn.Taker, *upkeep.Leases) {
	s.t.Helper()
	log, calls := s.log, &timelimit.Calls{}
	st, b := store{s.store, s}, wire{s.bus, s}
	periods := upkeep.Periods{Lease: 10 * time.Second, RedeliveryDelay: redelivery, Sweep: time.Second, Heartbeat: time.Second, LateResults: cmp.Or(s.late, -1)}
	kinds, hooks, providers := toolspec.Kinds(s.tools), hookspec.Kinds(s.hooks), map[string]model.Provider{"scripted": s.model}
	agents := definition.New(s.store, definition.Config{
		Kinds: kinds, Hooks: hooks, Providers: providers, Loops: s.loops, Patience: time.Second, Calls: calls, Log: log,
	})
	d := dispatch.New(b, func(string) bool { return false })
	leases := upkeep.NewLeases(st, periods, redelivery > time.Second, log)
	finalizer := upkeep.NewFinalizer(s.store, s.bus, upkeep.FinalizerConfig{Dispatch: d, Agents: agents, Clock: &clock.Clock{}, RedeliveryDelay: time.Second, ToolOutput: 1 << 10, Log: log})
	sweeper := upkeep.NewSweeper(s.store, s.bus, d, finalizer, periods, prometheus.NewCounter(prometheus.CounterOpts{Name: "swept"}), log)
	registry, ticks := prometheus.NewRegistry(), &clock.Clock{}
	effects, err := effect.New(effect.Config{
		Worker: worker,
		Models: effect.Models{Providers: providers, Prices: model.DefaultPrices(), RateLimits: s.limit, Prompt: 1 << 20, Output: 1 << 20},
		Tools:  effect.Tools{Kinds: kinds, Output: 128 << 10, MaxResult: tool.MaxResult, Answers: admission.NewAnswers(256 << 20), ProbeMargin: time.Second, ProbeRetry: time.Second},
		Hooks:  hooks, Agents: agents, Leases: leases, Quotas: s.store, Live: s.bus,
		Clock: ticks, Calls: calls, Random: random.Source{R: zeros{}}, Registry: registry, Log: log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	watchers, err := s.bus.Watchers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(watchers.Stop)
	effects.Start(s.t.Context(), watchers)
	s.t.Cleanup(effects.Wait)
	k, err := turn.New(st, b, turn.Config{
		Worker: worker, MaxAttempts: 5, Periods: periods, Quarantine: s.quarantine, Effects: effects, Agents: agents, Dispatch: d, Next: func() (bool, bool) { return true, false }, MayStay: func(string, bool) bool { return true },
		Views:  admission.NewAnswers(1 << 30),
		Upkeep: turn.Upkeep{Leases: leases, Members: upkeep.NewMembers(upkeep.Self{ID: worker}, s.store, s.bus, leases, sweeper, periods, log), Finalizer: finalizer},
		Clock:  ticks, Random: random.Source{R: tokens}, Registry: registry, Log: log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return k, leases
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// names makes tokens from the name of a worker.
type names string

func (n names) Read(p []byte) (int, error) {
	clear(p)
	copy(p, n)
	return len(p), nil
}

// record returns the run as stored.
func (s *stage) record() (r record.Record) {
	s.t.Helper()
	if err := s.store.Snapshot().Record(s.id, &r); err != nil {
		s.t.Error(err)
	}
	return r
}

// has reports whether the store has the result of a call.
func (s *stage) has(call string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.record().Results, func(e state.Entry) bool { return e.CallID == call })
}

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

// key returns the key of the scripted model's rate limit.
func (s *stage) key() string {
	key, _, _ := s.limit.For("scripted", "", "", "")
	return key
}

// called reports whether the store has the start of a call, and no tool call is running.
func (s *stage) called() bool {
	s.t.Helper()
	return len(s.record().Started) > 0
}
