package e2e_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A message through one gateway withdraws the turn of a run that waits for an approval, on each store. Once a
// tool of the turn has run it is refused, and the run continues as if it had not been sent.
func TestRollbackOnEachStore(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		ctx := t.Context()
		definition := `{"model":{"provider":"scripted","responses":[{"text":"I pay.","tool_calls":[{"id":"c1","name":"pay","arguments":{}}]},{"tool_calls":[{"id":"c2","name":"pay","arguments":{}}]},{"text":"done"},{"text":"more"}]},
			"tools":[{"name":"pay","kind":"client","schema":{"type":"object"},"approval":"always"}]}`
		if _, err := p.one.PutAgent(ctx, "payer", []byte(definition)); err != nil {
			t.Fatal(err)
		}
		run, err := p.one.Submit(ctx, api.SubmitRequest{Agent: "payer", Input: api.Text("one")}, "")
		if err != nil {
			t.Fatal(err)
		}
		waits := func(reason string) (got api.Run) {
			t.Helper()
			testbed.Eventually(t, "the run is "+reason, func() (err error) {
				if got, err = p.other.Get(ctx, run.ID); err == nil && string(got.Transition.Reason) != reason {
					err = fmt.Errorf("it is %s (%s)", got.Status, got.Transition.Reason)
				}
				return err
			})
			return got
		}
		say := func(text string) api.SignalRequest {
			return api.SignalRequest{SignalID: text, Message: api.Text(text), Mode: api.ModeRollback}
		}
		first := waits("waiting_approval")
		if _, err := p.other.Signal(ctx, run.ID, say("two")); err != nil {
			t.Fatal(err)
		}
		var second api.Run
		testbed.Eventually(t, "the run waits again", func() (err error) {
			if second, err = p.other.Get(ctx, run.ID); err == nil && (second.Status != "waiting" || second.Version == first.Version) {
				err = fmt.Errorf("it is %s at version %d", second.Status, second.Version)
			}
			return err
		})
		view, err := p.one.Messages(ctx, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		var roles []string
		for _, m := range view {
			roles = append(roles, string(m.Role))
		}
		if got := fmt.Sprint(roles); got != "[user user assistant]" {
			t.Errorf("the model reads %s, want it without the withdrawn turn", got)
		}
		call := second.Waiting.Calls[0]
		approval := api.SignalRequest{Approvals: []api.Approval{{CallID: call.ID, Decision: "approve", Hash: call.Hash}}}
		if _, err := p.one.Signal(ctx, run.ID, approval); err != nil {
			t.Fatal(err)
		}
		waits("waiting_client_tool")
		_, err = p.other.Signal(ctx, run.ID, say("three"))
		if problem, ok := errors.AsType[*api.Problem](err); !ok || problem.Code != api.CodeEffectsStarted || problem.Status != 409 {
			t.Errorf("a rollback while the client makes the call gets %v, want effects_started", err)
		}
		if _, err := p.other.Signal(ctx, run.ID, say("two")); err != nil {
			t.Errorf("the first rollback, sent again, gets %v", err)
		}
		result := api.SignalRequest{ToolResults: []api.ToolResult{{CallID: call.ID, Content: []byte(`"paid"`)}}}
		if _, err := p.one.Signal(ctx, run.ID, result); err != nil {
			t.Fatal(err)
		}
		if end, err := p.one.Wait(ctx, run.ID); err != nil || end.Output == nil || *end.Output != "done" {
			t.Fatalf("%+v, %v", end, err)
		}
		if _, err := p.one.Signal(ctx, run.ID, say("four")); err != nil {
			t.Fatal(err)
		}
		if end, err := p.one.Wait(ctx, run.ID); err != nil || end.Output == nil || *end.Output != "more" {
			t.Fatalf("after the message to the ended run: %+v, %v", end, err)
		}
	})
}
