package worker_test

import (
	"context"
	"encoding/json"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// caller is a model that calls a tool in each turn but the last, and reports the last one.
type caller struct {
	turns int
	last  chan struct{}
}

func (c caller) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	if r.Call == c.turns-1 {
		c.last <- struct{}{}
		return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}}, nil
	}
	return model.Response{Parts: []state.Part{{Type: state.PartToolCall, ID: "call_" + strconv.Itoa(r.Call), Name: "noop", Arguments: `{"q":"x"}`}}}, nil
}

// BenchmarkTurn measures the cost of the worker itself: turns of one model call and one tool call, with a store
// and a bus in memory, in runs of ten turns, fifty at once. CPU time and allocations are those of the whole
// process.
func BenchmarkTurn(b *testing.B) {
	const turns, atOnce = 10, 50
	store, events := memstore.New(memstore.Config{}), membus.New()
	store.SetFormat(state.Format) // as if a gateway were present
	provider := caller{turns, make(chan struct{}, atOnce)}
	w, err := worker.New(store, events, worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": provider}, ShutdownGrace: time.Second,
		Kinds: toolspec.Kinds(map[string]tool.Tool{"noop": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "done"}, nil })}),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	def, err := json.Marshal(agent.Definition{Name: "a", Model: agent.Model{Provider: "scripted"}, Tools: []agent.Tool{{Name: "noop", Idempotent: true}}})
	if err != nil {
		b.Fatal(err)
	}
	v, err := store.PutAgent(b.Context(), state.DefaultTenant, "a", def, false)
	if err != nil {
		b.Fatal(err)
	}
	submit := func() {
		run := state.State{
			ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: v.Version, Loop: "react", Tenant: "default",
			Priority: state.Normal, Limits: state.Limits{MaxTurns: turns},
		}
		input := state.UserText("hello")
		input.ID = "msg_1_0"
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{input}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := store.Create(b.Context(), state.NewRun{State: run, RedeliveryDelay: time.Minute}); err != nil {
			b.Fatal(err)
		}
		if err := events.PublishTurn(b.Context(), bus.Turn{Run: run.ID, Version: 1, Priority: state.Normal}, string(run.ID)+":1"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	before, taken := used(b), 0
	for ; taken < b.N; taken += atOnce * turns {
		for range atOnce {
			submit()
		}
		for range atOnce {
			<-provider.last
		}
	}
	// Whole batches run, so ns/op covers more turns than b.N.
	b.ReportMetric(float64((used(b)-before).Nanoseconds())/float64(taken), "cpu-ns/turn")
	counts, err := store.Counts(b.Context())
	if n := int64(taken / turns); err != nil || counts[state.Failed] > 0 || counts[state.Completed] < n-atOnce {
		b.Fatalf("of %d runs: %v %v", n, counts, err)
	}
}

// used returns the CPU time of this process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
