package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A message through one gateway interrupts a run that another gateway accepted, on each store, and is refused
// in mode reject. Afterwards the run can be continued, forked and deleted.
func TestInterruptOnEachStore(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		ctx := t.Context()
		definition := `{"model":{"provider":"scripted","responses":[{"text":"late","delay":"1h"},{"tool_calls":[{"id":"c1","name":"pay","arguments":{}}]},{"text":"stopped"},{"text":"more"}]},
			"tools":[{"name":"pay","kind":"client","schema":{"type":"object"},"approval":"always"}]}`
		if _, err := p.one.PutAgent(ctx, "slow", []byte(definition)); err != nil {
			t.Fatal(err)
		}
		run, err := p.one.Submit(ctx, api.SubmitRequest{Agent: "slow", Input: api.Text("one")}, "")
		if err != nil {
			t.Fatal(err)
		}
		is := func(status string) (got api.Run) {
			t.Helper()
			testbed.Eventually(t, "the run is "+status, func() (err error) {
				if got, err = p.other.Get(ctx, run.ID); err == nil && got.Status != status {
					err = fmt.Errorf("it is %s", got.Status)
				}
				return err
			})
			return got
		}
		refused := func(what, code string, s api.SignalRequest) {
			t.Helper()
			_, err := p.other.Signal(ctx, run.ID, s)
			if problem, ok := errors.AsType[*api.Problem](err); !ok || problem.Code != code || problem.Status != 409 {
				t.Errorf("%s gets %v, want %s", what, err, code)
			}
		}
		say := func(text, mode string) api.SignalRequest {
			return api.SignalRequest{SignalID: text, Message: api.Text(text), Mode: mode}
		}
		is("running")
		<-p.called // otherwise the interrupt may precede the call, which then gets the first response again
		refused("a message to a busy run", api.CodeRunBusy, say("two", api.ModeReject))
		if _, err := p.other.Signal(ctx, run.ID, say("three", api.ModeInterrupt)); err != nil {
			t.Fatal(err)
		}
		call := is("waiting").Waiting.Calls[0]
		if _, err := p.other.Signal(ctx, run.ID, say("four", api.ModeInterrupt)); err != nil {
			t.Fatal(err)
		}
		approval := api.SignalRequest{Approvals: []api.Approval{{CallID: call.ID, Decision: "approve", Hash: call.Hash}}}
		_, err = p.other.Signal(ctx, run.ID, approval)
		if problem, ok := errors.AsType[*api.Problem](err); !ok || problem.Status != 409 {
			t.Errorf("a late approval gets %v, want 409", err)
		}
		is("completed")
		if _, err := p.one.Signal(ctx, run.ID, say("five", api.ModeReject)); err != nil {
			t.Fatal(err)
		}
		if end, err := p.one.Wait(ctx, run.ID); err != nil || end.Output == nil || *end.Output != "more" {
			t.Fatalf("%+v, %v", end, err)
		}
		var reasons []string
		for e, err := range p.one.Events(ctx, run.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == state.EntryDecided && (e.Approval == nil || e.Approval.Reason != "interrupted" || e.Approval.Decision != state.Deny) {
				t.Errorf("the call was decided: %+v", e.Approval)
			}
			if e.Reason != "" {
				reasons = append(reasons, string(e.Reason))
			}
		}
		want := []string{"submitted", "interrupted", "waiting_approval", "interrupted", "completed", "user_message", "completed"}
		if !slices.Equal(reasons, want) {
			t.Errorf("the run's transitions are %v, want %v", reasons, want)
		}
		turn := 1
		fork, err := p.one.Fork(ctx, run.ID, api.ForkRequest{Turn: &turn, Input: api.Text("again")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.one.Cancel(ctx, fork.ID, ""); err != nil {
			t.Error(err)
		}
		if err := p.other.Delete(ctx, run.ID); err != nil {
			t.Errorf("the run cannot be deleted: %v", err)
		}
	})
}
