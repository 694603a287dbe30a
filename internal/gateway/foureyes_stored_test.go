package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const payer = `{"model":{"provider":"scripted","responses":[{"text":"hello"},{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`

// fourEyes requires four eyes in the tenant acme, which has the agents payer and a. It returns clients of three
// principals with all roles that requests of runs need.
func (s *guarded) fourEyes(settings api.TenantSettings) (ann, bob, carl *api.Client) {
	s.t.Helper()
	settings.FourEyes = true
	if _, err := s.client("*", access.Admin).PutTenant(s.t.Context(), "acme", settings); err != nil {
		s.t.Fatal(err)
	}
	all := []access.Role{access.Author, access.Submitter, access.Approver, access.Operator}
	ann, bob, carl = s.client("acme", all...), s.client("acme", all...), s.client("acme", all...)
	for name, definition := range map[string]string{"payer": payer, "a": talker} {
		if _, err := ann.PutAgent(s.t.Context(), name, []byte(definition)); err != nil {
			s.t.Fatal(err)
		}
	}
	return ann, bob, carl
}

// approves reports whether four eyes let a client decide about a call of a run, whether or not the call waits.
func (s *guarded) approves(c *api.Client, id string) bool {
	s.t.Helper()
	_, err := c.Signal(s.t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}})
	p, refused := errors.AsType[*api.Problem](err)
	if err != nil && (!refused || p.Code != api.CodeForbidden && p.Code != api.CodeNotWaiting) {
		s.t.Fatal(err)
	}
	return !refused || p.Code != api.CodeForbidden
}

// Whoever stored a hook last has asked for the runs that it starts, and for their forks.
func TestFourEyesOfHooks(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	ann, bob, carl := s.fourEyes(api.TenantSettings{})
	var settings api.HookSettings
	if err := api.Decode([]byte(triage), &settings); err != nil {
		t.Fatal(err)
	}
	deliver := func(by *api.Client, n int) string {
		t.Helper()
		made, err := by.PutHook(t.Context(), "triage", settings)
		if err != nil {
			t.Fatal(err)
		}
		status, out, p := s.github(made.Path, "a secret", fmt.Sprintf("d-%d", n), opened(n))
		if status != http.StatusAccepted {
			t.Fatalf("a delivery: %d %s", status, p.Detail)
		}
		return out.RunID
	}
	first := deliver(ann, 1)
	second := deliver(bob, 2)
	forked, err := carl.Fork(t.Context(), first, api.ForkRequest{Turn: new(0)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		by   *api.Client
		run  string
		may  bool
	}{
		{"the one who stored the hook", ann, first, false}, {"another approver", bob, first, true},
		{"the one who stored the hook again", bob, second, false}, {"the one who stored it before", ann, second, true},
		{"the one who stored the hook of the source run", ann, forked.ID, false}, {"the one who forked it", carl, forked.ID, false}, {"another approver", bob, forked.ID, true},
	} {
		if s.approves(c.by, c.run) != c.may {
			t.Errorf("%s may approve: %t, want %t", c.what, !c.may, c.may)
		}
	}
}

// Whoever stored a hook last has said what it says to a run.
func TestFourEyesOfSignalsOfHooks(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	ann, bob, carl := s.fourEyes(api.TenantSettings{})
	run, err := bob.Submit(t.Context(), api.SubmitRequest{Agent: "payer", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.await(bob, run.ID, "completed")
	made, err := ann.PutHook(t.Context(), "say", api.HookSettings{Verify: "github", Secret: []string{"secret://HOOK"}, Signal: &api.HookSignal{Run: "event.run", Message: "'pay me'"}})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, p := s.github(made.Path, "a secret", "d-1", fmt.Sprintf(`{"run":%q}`, run.ID)); status != http.StatusAccepted {
		t.Fatalf("a delivery: %d %s", status, p.Detail)
	}
	s.await(bob, run.ID, "waiting_approval")
	for who, c := range map[string]*api.Client{"the submitter of the run": bob, "the one who stored the hook": ann} {
		if s.approves(c, run.ID) {
			t.Errorf("%s approves", who)
		}
	}
	if !s.approves(carl, run.ID) {
		t.Error("another approver was refused")
	}
}

// The last one to store a schedule and the one who starts its run are requesters of the run. Pausing and resuming a
// schedule does not hide who stored it.
func TestFourEyesOfSchedules(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	ann, bob, carl := s.fourEyes(api.TenantSettings{})
	dan := s.client("acme", access.Approver)
	var settings api.ScheduleSettings
	if err := api.Decode([]byte(nightly), &settings); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.PutSchedule(t.Context(), "nightly", settings); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(context.Context, string) (api.Schedule, error){carl.PauseSchedule, carl.ResumeSchedule} {
		if _, err := change(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
	}
	run, err := bob.RunSchedule(t.Context(), "nightly", "")
	if err != nil {
		t.Fatal(err)
	}
	for who, c := range map[string]*api.Client{"the one who stored the schedule": ann, "the one who resumed it": carl, "the one who started its run": bob} {
		if s.approves(c, run.ID) {
			t.Errorf("%s approves", who)
		}
	}
	if !s.approves(dan, run.ID) {
		t.Error("another approver was refused")
	}
}

// The last one to store a trigger is a requester of the runs that it starts, and so is the one who replays its dead
// letter.
func TestFourEyesOfTriggers(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	ann, bob, carl := s.fourEyes(api.TenantSettings{Streams: []api.TenantStream{{Name: "ORDERS"}}})
	s.stream("ORDERS")
	put := func(input string) {
		t.Helper()
		s.put(ann, "orders", fmt.Sprintf(`{"stream": "ORDERS", "run": {"agent": "a", "input": %q}}`, input))
	}
	started := func(n int) (id string) {
		t.Helper()
		awaitSetting(t, func() bool {
			runs := 0
			s.each("acme", func(st state.State) { id, runs = string(st.ID), runs+1 })
			return runs == n
		})
		return id
	}
	put("'Order ' + event.id")
	s.publish("orders.new", `{"id":"17"}`)
	if id := started(1); s.approves(ann, id) || !s.approves(bob, id) {
		t.Error("the one who stored the trigger was allowed to approve, or another approver was refused")
	}
	put("event.missing")
	s.publish("orders.new", `{"id":17}`)
	var letter api.DeadLetter
	eventually(t, "the message is a dead letter", func() bool {
		page, err := bob.Dead(t.Context(), 0, 0)
		if err == nil && len(page.Items) == 1 {
			letter = page.Items[0]
		}
		return letter.Seq != 0
	})
	put("string(event.id)")
	replayed, err := bob.Replay(t.Context(), letter.Seq)
	if err != nil {
		t.Fatal(err)
	}
	id := replayed.Replay.RunID
	if s.approves(ann, id) || s.approves(bob, id) || !s.approves(carl, id) {
		t.Error("the one who stored the trigger or replayed the dead letter was allowed to approve, or another approver was refused")
	}
}
