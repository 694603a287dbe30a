package main

import (
	"context"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

// A refund is paid once, whenever the worker dies.
func TestPaysOnce(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		bank := map[string]int{}
		pay := turnpike.NewTool("pay", "Pays.", func(ctx context.Context, r Refund) (string, error) {
			bank[turnpike.IdempotencyKey(ctx)] = r.Cents
			return "paid", nil
		}, turnpike.Idempotent())
		d := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		a := turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}
		run := d.Start(a, "Order 7", tt.Calls("pay", Refund{"7", 500}), tt.Says("Done."))
		if i := d.WaitIdle(run); i.Status != "completed" || len(bank) != 1 {
			t.Error(i.Status, bank)
		}
	})
}

// The agent in YAML is valid, and the tool's function can be called directly.
func TestClerk(t *testing.T) {
	t.Parallel()
	text, err := pay(tt.Context(t, "k"), Refund{"7", 500})
	if err != nil || !strings.HasSuffix(text, "under k") {
		t.Error(text, err)
	}
	k := tt.New(t, turnpike.Options{Tools: []turnpike.Tool{
		turnpike.NewTool("pay", "Pays back.", pay, turnpike.Idempotent(), turnpike.Approval("args.Cents > 900")),
	}})
	if _, err := k.PutYAML(t.Context(), clerk); err != nil {
		t.Error(err)
	}
}
