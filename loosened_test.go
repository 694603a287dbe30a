package turnpike_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// An agent may tighten the rules of a tool in Go, but not loosen them, not even by leaving one out.
func TestAgentsDoNotLoosenTools(t *testing.T) {
	t.Parallel()
	probe := func(context.Context, refund) (string, turnpike.Outcome, error) { return "", tool.NotDone, nil }
	strict := turnpike.NewTool("strict", "", pay, turnpike.Approval("args.Cents > 900"), turnpike.Risk(tool.Pays), turnpike.MaxCalls(3), turnpike.Timeout(time.Minute), turnpike.Serial())
	probed := turnpike.NewTool("probed", "", pay, turnpike.Probe(probe))
	lax := turnpike.NewTool("lax", "", pay, turnpike.Idempotent(), turnpike.Async(), turnpike.Timeout(time.Hour))
	d := open(t, func(o *turnpike.Options) { o.Tools = []turnpike.Tool{strict, probed, lax} })
	for i, test := range []struct {
		of      turnpike.Tool
		change  func(*tool.Definition)
		refused string // the key; empty: the change is accepted
	}{
		{strict, func(*tool.Definition) {}, ""},
		{strict, func(d *tool.Definition) { d.Approval = tool.ApprovalAlways }, ""},
		{strict, func(d *tool.Definition) { d.Approval = tool.ApprovalNever }, "approval"},
		{strict, func(d *tool.Definition) { d.Approval = "" }, "approval"},
		{strict, func(d *tool.Definition) { d.Approval = "args.Cents > 9000" }, "approval"},
		{strict, func(d *tool.Definition) { d.Idempotent = true }, "idempotent"},
		{strict, func(d *tool.Definition) { d.Async = true }, "async"},
		{strict, func(d *tool.Definition) { d.Risk = "" }, "risk"},
		{strict, func(d *tool.Definition) { d.Risk = tool.Reads }, "risk"},
		{strict, func(d *tool.Definition) { d.MaxCalls = 0 }, "max_calls"},
		{strict, func(d *tool.Definition) { d.MaxCalls = 4 }, "max_calls"},
		{strict, func(d *tool.Definition) { d.MaxCalls = 2 }, ""},
		{strict, func(d *tool.Definition) { d.Timeout = 0 }, "timeout"},
		{strict, func(d *tool.Definition) { d.Timeout = model.Duration(61 * time.Second) }, "timeout"},
		{strict, func(d *tool.Definition) { d.Timeout = model.Duration(time.Second) }, ""},
		{strict, func(d *tool.Definition) { d.Concurrency = "" }, "concurrency"},
		{probed, func(*tool.Definition) {}, ""},
		{probed, func(d *tool.Definition) { d.Probe = nil }, "probe"},
		{lax, func(d *tool.Definition) { d.Approval, d.Risk = "args.Cents > 1", tool.Pays }, ""},
		{lax, func(d *tool.Definition) { d.Idempotent, d.Timeout = false, 0 }, ""},
		{lax, func(d *tool.Definition) { d.MaxCalls, d.Concurrency = 100, "serial" }, ""},
		{lax, func(d *tool.Definition) { d.Async = false }, "async"},
	} {
		a := agentOf("clerk", says("x")...)
		a.Tools = turnpike.Use(test.of)
		test.change(&a.Tools[0])
		_, err := d.PutAgent(t.Context(), a)
		if test.refused == "" && err != nil {
			t.Errorf("change %d of the tool %s is refused: %v", i+1, a.Tools[0].Name, err)
		}
		p, _ := errors.AsType[*turnpike.Error](err)
		if test.refused != "" && (!errors.Is(err, turnpike.ErrInvalid) || len(p.Errors) != 1 || p.Errors[0].At != "tools[0]."+test.refused) {
			t.Errorf("change %d of the tool %s: PutAgent = %v, want only %s refused", i+1, a.Tools[0].Name, err, test.refused)
		}
	}
}
