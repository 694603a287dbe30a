package turnpiketest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type Refund struct {
	Order string
	Cents int
}

// bank counts payments by key, and calls.
type bank struct {
	mu    sync.Mutex
	paid  map[string]int
	calls int
}

func (b *bank) tool(opts ...turnpike.ToolOption) turnpike.Tool {
	b.paid = map[string]int{}
	return turnpike.NewTool("pay", "Pays.", func(ctx context.Context, r Refund) (string, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls++
		b.paid[turnpike.IdempotencyKey(ctx)] = r.Cents
		return "paid", nil
	}, opts...)
}

// A payment is made once, wherever the worker dies.
func TestPaysOnce(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		var b bank
		pay := b.tool(turnpike.Idempotent())
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."))
		if i := k.WaitIdle(run); i.Status != "completed" || len(b.paid) != 1 {
			t.Error(i.Status, b.paid)
		}
		k.Golden(run, "testdata/pays.txt")
	})
}

// A structured answer that does not match is returned to the model once, wherever the worker dies.
func TestStructuredOutput(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		var b bank
		pay := b.tool(turnpike.Idempotent())
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		a := turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay), OutputSchema: turnpike.MustSchema[struct{ Paid bool }]()}
		run := k.Start(a, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."), tt.Says(`{"Paid": true}`))
		if i := k.WaitIdle(run); i.Status != "completed" || string(i.StructuredOutput) != `{"Paid":true}` || len(b.paid) != 1 {
			t.Error(i.Status, string(i.StructuredOutput), b.paid)
		}
		k.Golden(run, "testdata/structured.txt")
	})
}

// A result with calls after it is stored on its own, and the loop continues from it.
func TestSerialCalls(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		var b bank
		pay := b.tool(turnpike.Idempotent(), turnpike.Serial())
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		both := tt.Calls("pay", Refund{"7", 500})
		both.ToolCalls = append(both.ToolCalls, tt.Calls("pay", Refund{"8", 300}).ToolCalls...)
		run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Orders 7 and 8", both, tt.Says("Done."))
		if i := k.WaitIdle(run); i.Status != "completed" || len(b.paid) != 2 {
			t.Error(i.Status, b.paid)
		}
	})
}

// A call that is not idempotent starts at most once.
func TestStartsOnce(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		var b bank
		pay := b.tool()
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."))
		if i := k.WaitIdle(run); i.Status != "completed" || b.calls > 1 {
			t.Error(i.Status, b.calls)
		}
	})
}

// A tool's probe determines whether a call was made, so the model always reads its result.
func TestProbe(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		var b bank
		look := func(ctx context.Context, _ Refund) (string, turnpike.Outcome, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if _, ok := b.paid[turnpike.IdempotencyKey(ctx)]; !ok {
				return "", tool.NotDone, nil
			}
			return "paid", tool.Done, nil
		}
		pay := b.tool(turnpike.Probe(look))
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."))
		if i := k.WaitIdle(run); i.Status != "completed" || b.calls != 1 {
			t.Error(i.Status, b.calls)
		}
		k.Golden(run, "testdata/pays.txt")
	})
}

// Approvals, model failures and crashes also work in real time.
func TestKit(t *testing.T) {
	t.Parallel()
	var b bank
	pay := b.tool(turnpike.Idempotent(), turnpike.Approval("args.Cents > 900"))
	k := tt.New(t, turnpike.Options{Tools: []turnpike.Tool{pay}})
	k.CrashAt(tt.TurnCommitted, 1)
	run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", Refund{"7", 1000}), tt.Fails(model.InvalidRequest))
	i := k.WaitIdle(run)
	if i.Waiting == nil || b.calls != 0 {
		t.Fatal(i.Status, b.calls)
	}
	ada := k.As(turnpike.Principal{Name: "ada", Roles: []turnpike.Role{"approver"}})
	if err := ada.RunByID(run.ID()).Approve(t.Context(), turnpike.Decision{CallID: i.Waiting.Calls[0].ID, Hash: i.Waiting.Calls[0].Hash}); err != nil {
		t.Fatal(err)
	}
	if i, err := run.Wait(t.Context()); err != nil || i.Status != "failed" || b.calls != 1 {
		t.Error(i.Status, b.calls, err)
	}
}

// A tool's function can be called directly.
func TestContext(t *testing.T) {
	t.Parallel()
	ctx := tt.Context(t, "k")
	c, ok := turnpike.CallFrom(ctx)
	if key := turnpike.IdempotencyKey(ctx); key != "k" || !ok || c.Tenant != "default" {
		t.Error(key, ok, c)
	}
}

// A worker that dies inside a call leaves the call to the next one, which makes it again under the same key. It does
// not give the turn back, as a worker that stops does: its attempt counts.
func TestCrashHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		pay := turnpike.NewTool("pay", "Pays.", func(ctx context.Context, r Refund) (string, error) {
			keys = append(keys, turnpike.IdempotencyKey(ctx))
			if len(keys) == 1 {
				tt.CrashHere(ctx)
			}
			return "paid", nil
		}, turnpike.Idempotent())
		k := tt.New(t, turnpike.Options{Tools: []turnpike.Tool{pay}})
		run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."))
		if i := k.WaitIdle(run); i.Status != "completed" || len(keys) != 2 || keys[0] != keys[1] || i.Trouble.Recovered != 1 {
			t.Error(i.Status, keys, i.Trouble)
		}
	})
}

// A call that must not be made again has an unknown outcome after a crash. The outcome is committed before the model
// reads it: crashes in different turns are no attempts at the same one, which would end the run poisoned, and no lost
// call of the model, which would count toward its limits.
func TestCrashInEachTurn(t *testing.T) {
	t.Parallel()
	looked := turnpike.Probe(func(context.Context, Refund) (string, turnpike.Outcome, error) { return "", tool.Unknown, nil })
	for name, opts := range map[string][]turnpike.ToolOption{"plain": nil, "probe": {looked}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const turns = 7
				crashed := map[int]bool{}
				pay := turnpike.NewTool("pay", "Pays.", func(ctx context.Context, r Refund) (string, error) {
					if !crashed[r.Cents] {
						crashed[r.Cents] = true
						tt.CrashHere(ctx)
					}
					return "paid", nil
				}, opts...)
				k := tt.New(t, turnpike.Options{Tools: []turnpike.Tool{pay}})
				var script []model.Scripted
				for i := range turns {
					script = append(script, tt.Calls("pay", Refund{"7", i}))
				}
				run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", append(script, tt.Says("Done."))...)
				if i := k.WaitIdle(run); i.Status != "completed" || len(crashed) != turns || i.Usage.ModelCalls != turns+1 {
					t.Errorf("%s after %d crashes and %d calls of the model, want completed after %d and %d", i.Status, len(crashed), i.Usage.ModelCalls, turns, turns+1)
				}
			})
		})
	}
}

func TestCrashHereNeedsAKit(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("CrashHere returned outside a tool call")
		}
	}()
	tt.CrashHere(t.Context())
}
