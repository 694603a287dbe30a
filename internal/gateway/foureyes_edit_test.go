package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// edits drives a run of an agent whose calls need approval.
type edits struct {
	*guarded

	t    *testing.T
	read *api.Client
	id   string
}

// newEdits submits a run by ann, in a tenant with or without four eyes.
func newEdits(t *testing.T, s *guarded, ann *api.Client, definition string) *edits {
	t.Helper()
	if _, err := ann.PutAgent(t.Context(), "payer", []byte(definition)); err != nil {
		t.Fatal(err)
	}
	run, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "payer", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	e := &edits{guarded: s, t: t, read: ann, id: run.ID}
	s.await(ann, e.id, "waiting_approval")
	return e
}

// call returns the waiting call c1.
func (e *edits) call() api.WaitCall {
	e.t.Helper()
	run, err := e.read.Get(e.t.Context(), e.id)
	if err != nil {
		e.t.Fatal(err)
	}
	if run.Waiting == nil {
		e.t.Fatalf("the run is %s", run.Status)
	}
	i := slices.IndexFunc(run.Waiting.Calls, func(c api.WaitCall) bool { return c.ID == "c1" })
	if i < 0 {
		e.t.Fatalf("c1 does not wait: %+v", run.Waiting.Calls)
	}
	return run.Waiting.Calls[i]
}

// approve decides about the waiting call c1, with other arguments unless they are empty, and returns the code
// of a refusal.
func (e *edits) approve(c *api.Client, arguments string) string {
	e.t.Helper()
	return e.send(c, api.Approval{CallID: "c1", Decision: "approve", Hash: e.call().Hash, Arguments: json.RawMessage(arguments)})
}

func (e *edits) send(c *api.Client, approvals ...api.Approval) string {
	e.t.Helper()
	_, err := c.Signal(e.t.Context(), e.id, api.SignalRequest{Approvals: approvals})
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return ""
}

// awaitArguments waits until c1 waits for approval with arguments.
func (e *edits) awaitArguments(want string) api.WaitCall {
	e.t.Helper()
	var got api.WaitCall
	awaitSetting(e.t, func() bool {
		run, err := e.read.Get(e.t.Context(), e.id)
		if err != nil {
			e.t.Fatal(err)
		}
		if run.Terminal() {
			e.t.Fatalf("the run is %s: the call with %s was made", run.Status, want)
		}
		return run.Waiting != nil && slices.ContainsFunc(run.Waiting.Calls, func(c api.WaitCall) bool {
			got = c
			return c.ID == "c1" && c.Needs == string(state.NeedApproval) && string(c.Arguments) == want
		})
	})
	return got
}

// made returns the arguments with which c1 was called.
func (e *edits) made() string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	for ev, err := range e.read.Events(ctx, e.id, 0) {
		if err != nil {
			e.t.Fatal(err)
		}
		if ev.Type == state.EntryTool && ev.CallID == "c1" {
			return ev.Arguments
		}
	}
	return "none"
}

const (
	always = `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1","arguments":{"amount":1}}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`
	ruled  = `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1","arguments":{"amount":100}}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"args.amount > 10"}]}`
)

// With four eyes, an edited call needs the approval of a person who neither asked for the run nor edited the
// call, however often it is edited.
func TestFourEyesOfEdits(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann, bob, carl, dan := s.client("acme", both...), s.client("acme", both...), s.client("acme", both...), s.client("acme", both...)

	e := newEdits(t, s, ann, always)
	before := e.call()
	if before.Again != nil {
		t.Errorf("an unedited call waits again: %+v", before.Again)
	}
	if code := e.approve(bob, `{"amount":2}`); code != "" {
		t.Fatalf("edit: %s", code)
	}
	waits := e.awaitArguments(`{"amount":2}`)
	if waits.Hash == before.Hash || waits.Again == nil || waits.Again.Reason != state.AgainFourEyes || string(waits.Again.OriginalArguments) != `{"amount":1}` ||
		!strings.HasPrefix(waits.Again.EditedBy, "key:") || !strings.Contains(waits.Message, waits.Again.EditedBy+" edited the arguments") {
		t.Errorf("the edited call waits as %+v, %+v", waits, waits.Again)
	}
	for who, c := range map[string]*api.Client{"the requester": ann, "the editor": bob} {
		if code := e.approve(c, ""); code != api.CodeForbidden {
			t.Errorf("%s approves the edit: %q", who, code)
		}
		if code := e.approve(c, `{"amount":3}`); code != api.CodeForbidden {
			t.Errorf("%s edits again: %q", who, code)
		}
	}
	if code := e.send(dan, api.Approval{CallID: "c1", Decision: "approve"}); code != api.CodeStaleApproval {
		t.Errorf("without a hash: %q", code)
	}
	if code := e.send(dan, api.Approval{CallID: "c1", Decision: "approve", Hash: before.Hash}); code != api.CodeStaleApproval {
		t.Errorf("with the hash of the call before the edit: %q", code)
	}
	// Carl edits the call back: now the arguments are his, no longer the model's.
	if code := e.approve(carl, `{"amount":1}`); code != "" {
		t.Fatalf("edit back: %s", code)
	}
	if again := e.awaitArguments(`{"amount":1}`).Again; again == nil || again.EditedBy == waits.Again.EditedBy {
		t.Errorf("the second edit waits as %+v", again)
	}
	for who, c := range map[string]*api.Client{"the first editor": bob, "the second editor": carl} {
		if code := e.approve(c, ""); code != api.CodeForbidden {
			t.Errorf("%s approves: %q", who, code)
		}
	}
	// The same arguments in other notation are not an edit.
	if code := e.approve(dan, `{ "amount" : 1 }`); code != "" {
		t.Fatalf("approve: %s", code)
	}
	s.await(ann, e.id, "completed")
	if got := e.made(); got != `{"amount":1}` {
		t.Errorf("called with %s", got)
	}
}

// An approval with the hash of an edit that is still in the inbox is refused: the log does not name the editor
// yet.
func TestFourEyesOfPredictedHash(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann, bob := s.client("acme", both...), s.client("acme", both...)
	e := newEdits(t, s, ann, always)
	st, err := s.store.Load(t.Context(), state.RunID(e.id))
	if err != nil {
		t.Fatal(err)
	}
	next := st.ApprovalHash("c1", "pay", json.RawMessage(`{"amount":2}`))
	if code := e.send(bob, api.Approval{CallID: "c1", Decision: "approve", Hash: next}); code != api.CodeStaleApproval {
		t.Errorf("with the hash of a pending edit: %q", code)
	}
	if code := e.approve(bob, `{"amount":2}`); code != "" {
		t.Fatalf("edit: %s", code)
	}
	if got := e.awaitArguments(`{"amount":2}`).Hash; got != next {
		t.Errorf("waits under %s, want %s", got, next)
	}
	if code := e.send(bob, api.Approval{CallID: "c1", Decision: "approve", Hash: next}); code != api.CodeForbidden {
		t.Errorf("the editor approves: %q", code)
	}
}

// overtaken is a store in which something happens just before it gets a signal.
type overtaken struct {
	state.Store

	signal string
	before func()
}

func (s overtaken) Signal(ctx context.Context, run state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	if sig.ID == s.signal {
		s.before()
	}
	return s.Store.Signal(ctx, run, sig, delay)
}

// An approval with the hash of an edit is refused although the edited call waits by the time that the store gets the
// approval: the log that the gateway has read does not name the editor.
func TestFourEyesOfOvertakenApproval(t *testing.T) {
	t.Parallel()
	var e *edits
	var bob *api.Client
	s := newWorkedOn(t, scripted.New(), func(s state.Store) state.Store {
		return overtaken{s, "early", func() {
			e.approve(bob, `{"amount":2}`)
			e.awaitArguments(`{"amount":2}`)
		}}
	})
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann := s.client("acme", both...)
	e, bob = newEdits(t, s, ann, always), s.client("acme", both...)
	st, err := s.store.Load(t.Context(), state.RunID(e.id))
	if err != nil {
		t.Fatal(err)
	}
	_, err = bob.Signal(t.Context(), e.id, api.SignalRequest{SignalID: "early", Approvals: []api.Approval{{CallID: "c1", Decision: "approve", Hash: st.ApprovalHash("c1", "pay", json.RawMessage(`{"amount":2}`))}}})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeStaleApproval {
		t.Errorf("the editor approves: %v, want %s", err, api.CodeStaleApproval)
	}
}

// If one signal decides about two calls, only the edited one waits for a third person.
func TestFourEyesOfSeveralCalls(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann, bob, carl := s.client("acme", both...), s.client("acme", both...), s.client("acme", both...)
	e := newEdits(t, s, ann, `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1","arguments":{"amount":1}},{"name":"pay","id":"c2","arguments":{"amount":5}}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`)
	if code := e.send(bob, api.Approval{CallID: "c2", Decision: "approve"}, api.Approval{CallID: "c1", Decision: "approve", Arguments: json.RawMessage(`{"amount":2}`)}); code != "" {
		t.Fatalf("approve both: %s", code)
	}
	e.awaitArguments(`{"amount":2}`)
	if code := e.approve(bob, ""); code != api.CodeForbidden {
		t.Errorf("the editor approves: %q", code)
	}
	if code := e.approve(carl, ""); code != "" {
		t.Errorf("a third person approves: %q", code)
	}
	s.await(ann, e.id, "completed")
}

// Without four eyes, an edit counts as the approval of a tool that always needs one. An edited call that
// matches the rule waits again, and the event says why.
func TestEditedCallSaysWhyItWaitsAgain(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann := s.client("acme", both...)
	e := newEdits(t, s, ann, ruled)
	if code := e.approve(ann, `{"amount":50}`); code != "" {
		t.Fatalf("edit: %s", code)
	}
	waits := e.awaitArguments(`{"amount":50}`)
	if waits.Again == nil || waits.Again.Reason != state.AgainRule || string(waits.Again.OriginalArguments) != `{"amount":100}` || !strings.Contains(waits.Message, "rule") {
		t.Errorf("waits as %+v, %+v", waits, waits.Again)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last *api.Event
	for ev, err := range ann.Events(ctx, e.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == state.EntryWaiting && ev.Waiting.Calls[0].Again != nil {
			last = &ev
			break
		}
	}
	if again := last.Waiting.Calls[0].Again; again.Reason != state.AgainRule || !strings.Contains(last.Waiting.Calls[0].Message, "edited the arguments") {
		t.Errorf("run.waiting: %+v, %+v", last.Waiting.Calls[0], again)
	}
	if code := e.approve(ann, `{"amount":5}`); code != "" {
		t.Fatalf("edit below the rule: %s", code)
	}
	s.await(ann, e.id, "completed")
	if got := e.made(); got != `{"amount":5}` {
		t.Errorf("called with %s", got)
	}

	e = newEdits(t, s, ann, always)
	if code := e.approve(ann, `{"amount":2}`); code != "" {
		t.Fatalf("edit: %s", code)
	}
	s.await(ann, e.id, "completed")
	if got := e.made(); got != `{"amount":2}` {
		t.Errorf("called with %s", got)
	}
}
