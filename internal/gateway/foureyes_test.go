package gateway_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// patient is a provider whose model "patient" reports the first call of a run, and answers it after release.
type patient struct {
	model.Provider

	begun, release chan struct{}
}

func (p patient) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if r.Model == "patient" && r.Call == 0 {
		p.begun <- struct{}{}
		select {
		case <-p.release:
		case <-ctx.Done():
		}
	}
	return p.Provider.Generate(ctx, r, onDelta)
}

// newWorked returns a gateway that requires keys, with a worker that has the tool pay.
func newWorked(t *testing.T) *guarded {
	t.Helper()
	return newWorkedBy(t, scripted.New())
}

// newWorkedBy is newWorked with the given model provider.
func newWorkedBy(t *testing.T, provider model.Provider) *guarded {
	t.Helper()
	return newWorkedOn(t, provider, func(s state.Store) state.Store { return s })
}

// newWorkedOn is newWorkedBy with a wrapper for the store of the gateway.
func newWorkedOn(t *testing.T, provider model.Provider, wrap func(state.Store) state.Store) *guarded {
	t.Helper()
	store, b := memstore.New(memstore.Config{}), membus.New()
	keys := access.NewKeys(store)
	g, err := gateway.New(wrap(store), b, gateway.Config{Auth: access.Chain{Keys: keys}, HookSecret: func(string, string, policy.Policy) (string, error) { return "a secret", nil }})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(store, b, worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": provider}, ShutdownGrace: time.Millisecond,
		Kinds: toolspec.Kinds(map[string]tool.Tool{"pay": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "paid"}, nil })}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = w.Run(ctx) })
	all.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() { stop(); server.Close(); all.Wait() })
	return &guarded{t: t, url: server.URL, keys: keys, store: &countingStore{Store: store}, bus: b}
}

// await waits until a run has changed for a reason.
func (s *guarded) await(c *api.Client, id, reason string) {
	s.t.Helper()
	awaitSetting(s.t, func() bool {
		run, err := c.Get(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		return run.Reason != nil && *run.Reason == reason
	})
}

// Nobody can approve calls that they asked for: neither in a run that they sent a message to, nor in one that
// such a run started.
func TestFourEyes(t *testing.T) {
	t.Parallel()
	held := patient{scripted.New(), make(chan struct{}, 10), make(chan struct{})}
	s := newWorkedBy(t, held)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	both := []access.Role{access.Author, access.Submitter, access.Approver}
	ann, bob := s.client("acme", both...), s.client("acme", both...)
	for name, definition := range map[string]string{
		"payer":  `{"model":{"provider":"scripted","responses":[{"text":"hello"},{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`,
		"child":  `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`,
		"busy":   `{"model":{"provider":"scripted","name":"patient","responses":[{"text":"hello"},{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`,
		"asker":  `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"ask_user","id":"q1","arguments":{"question":"What?"}}]},{"text":"done"}]},"tools":[{"name":"ask_user","kind":"human"}]}`,
		"asks":   `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"sub","id":"d1","arguments":{"task":"ask"}}]},{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"sub","kind":"agent","agent":"asker"},{"name":"pay","approval":"always"}]}`,
		"parent": `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"ask","id":"d1","arguments":{"task":"pay"}}]},{"text":"done"}]},"tools":[{"name":"ask","kind":"agent","agent":"child"}]}`,
	} {
		if _, err := ann.PutAgent(t.Context(), name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
	}
	await := func(id, reason string) { t.Helper(); s.await(ann, id, reason) }
	submit := func(c *api.Client, agent string) api.Run {
		t.Helper()
		run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: agent, Input: api.Text("x")}, "")
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	// child returns the run that a run has started. It appears a moment after the parent waits for it.
	child := func(parent string) (id string) {
		t.Helper()
		awaitSetting(t, func() bool {
			page, err := ann.List(t.Context(), url.Values{"parent": {parent}})
			if err == nil && len(page.Items) == 1 {
				id = page.Items[0].ID
			}
			return id != ""
		})
		return id
	}
	approve := func(c *api.Client, id string) error {
		_, err := c.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}})
		return err
	}
	decide := func(what, id string) {
		t.Helper()
		if p, ok := errors.AsType[*api.Problem](approve(ann, id)); !ok || p.Code != api.CodeForbidden {
			t.Errorf("%s: the requester approves: %v", what, p)
		}
		if err := approve(bob, id); err != nil {
			t.Errorf("%s: another principal approves: %v", what, err)
		}
		await(id, "completed")
	}

	// Bob submitted the run, and Ann sent it the instruction.
	run := submit(bob, "payer")
	await(run.ID, "completed")
	if _, err := ann.Signal(t.Context(), run.ID, api.SignalRequest{Message: api.Text("pay me")}); err != nil {
		t.Fatal(err)
	}
	await(run.ID, "waiting_approval")
	if p, ok := errors.AsType[*api.Problem](approve(bob, run.ID)); !ok || p.Code != api.CodeForbidden {
		t.Errorf("the submitter approves: %v", p)
	}
	if p, ok := errors.AsType[*api.Problem](approve(ann, run.ID)); !ok || p.Code != api.CodeForbidden {
		t.Errorf("the requester of the payment approves it: %v", p)
	}

	// Bob's run starts later, and Ann sent it a message before.
	var later api.Run
	var err error
	for ahead := time.Second; later.Reason == nil || *later.Reason != string(state.WaitingSchedule); ahead *= 2 {
		if later, err = bob.Submit(t.Context(), api.SubmitRequest{Agent: "child", Input: api.Text("x"), StartAt: new(state.At(time.Now().Add(ahead)))}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err = ann.Signal(t.Context(), later.ID, api.SignalRequest{Message: api.Text("pay me")}); err != nil {
			t.Fatal(err)
		}
		if later, err = ann.Get(t.Context(), later.ID); err != nil { // on a busy machine it may have started
			t.Fatal(err)
		}
	}
	await(later.ID, "waiting_approval")
	if p, ok := errors.AsType[*api.Problem](approve(ann, later.ID)); !ok || p.Code != api.CodeForbidden {
		t.Errorf("the requester approves, having asked before the start: %v", p)
	}

	// Another principal forks Ann's run, and forks the fork.
	var forked api.Run
	carl, from := s.client("acme", both...), map[string]string{"who submitted": submit(ann, "child").ID, "who sent a message": run.ID}
	await(from["who submitted"], "waiting_approval")
	for what, id := range from {
		for range 2 {
			var err error
			if forked, err = carl.Fork(t.Context(), id, api.ForkRequest{Turn: new(0)}); err != nil {
				t.Fatal(err)
			}
			id = forked.ID
		}
		if what == "who submitted" {
			await(forked.ID, "waiting_approval")
			decide("a fork of a fork", forked.ID)
			continue
		}
		await(forked.ID, "completed")
		if _, err := carl.Signal(t.Context(), forked.ID, api.SignalRequest{Message: api.Text("pay her")}); err != nil {
			t.Fatal(err)
		}
		await(forked.ID, "waiting_approval")
		if p, ok := errors.AsType[*api.Problem](approve(ann, forked.ID)); !ok || p.Code != api.CodeForbidden {
			t.Errorf("a fork: %s, a requester of the original, approves: %v", what, p)
		}
	}

	// Ann and Carl send messages while the model of Bob's run is working. The run reads both at once: both are
	// requesters.
	busy := submit(bob, "busy")
	<-held.begun
	for _, c := range []*api.Client{carl, ann} {
		if _, err := c.Signal(t.Context(), busy.ID, api.SignalRequest{Message: api.Text("pay me")}); err != nil {
			t.Fatal(err)
		}
	}
	close(held.release)
	await(busy.ID, "waiting_approval")
	for who, c := range map[string]*api.Client{"the first": carl, "the second": ann} {
		if p, ok := errors.AsType[*api.Problem](approve(c, busy.ID)); !ok || p.Code != api.CodeForbidden {
			t.Errorf("%s, who sent a message while the model was working, approves: %v", who, p)
		}
	}

	// Bob's run starts another agent that asks, and Ann answers what to pay.
	asks := submit(bob, "asks")
	await(asks.ID, "waiting_child")
	asked := child(asks.ID)
	await(asked, "waiting_human_input")
	if _, err := ann.Signal(t.Context(), asked, api.SignalRequest{Answer: new("pay me")}); err != nil {
		t.Fatal(err)
	}
	await(asks.ID, "waiting_approval")
	if p, ok := errors.AsType[*api.Problem](approve(ann, asks.ID)); !ok || p.Code != api.CodeForbidden {
		t.Errorf("the principal who answered a child run approves: %v", p)
	}
	if err := approve(carl, asks.ID); err != nil {
		t.Errorf("another principal approves: %v", err)
	}

	// Ann's run starts another agent that pays.
	above := submit(ann, "parent")
	await(above.ID, "waiting_child")
	below := child(above.ID)
	await(below, "waiting_approval")
	decide("a run below", below)
	if forked, err = carl.Fork(t.Context(), below, api.ForkRequest{Turn: new(0)}); err != nil {
		t.Fatal(err)
	}
	await(forked.ID, "waiting_approval")
	decide("a fork of a run below", forked.ID)
}

// The sender of a refused submission is the requester of its run, whoever replays it.
func TestFourEyesOfReplayed(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	key := s.key("acme", access.Submitter, access.Approver)
	ann, carl := api.New(s.url, api.WithToken(key)), s.client("acme", access.Author, access.Operator, access.Approver)
	s.bus.Submit("acme", "payer", []byte(`{"input":"pay me"}`), map[string]string{"Turnpike-Token": key})
	var letters []bus.DeadLetter
	awaitSetting(t, func() (found bool) {
		var err error
		letters, err = s.bus.DeadLetters(t.Context(), "acme", 0, 10)
		return err == nil && len(letters) == 1
	})
	if _, err := carl.PutAgent(t.Context(), "payer", []byte(`{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`)); err != nil {
		t.Fatal(err)
	}
	replayed, err := carl.Replay(t.Context(), letters[0].Seq)
	if err != nil {
		t.Fatal(err)
	}
	id := replayed.Replay.RunID
	s.await(carl, id, "waiting_approval")
	for who, c := range map[string]*api.Client{"who sent it": ann, "who replayed it": carl} {
		_, err := c.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}})
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeForbidden {
			t.Errorf("%s approves: %v", who, err)
		}
	}
}

// The submitter of a run is a requester of all its descendants, at any depth, and of their forks.
func TestFourEyesOfDescendants(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	roles := []access.Role{access.Author, access.Submitter, access.Approver}
	ann, bob := s.client("acme", roles...), s.client("acme", roles...)
	for name, definition := range map[string]string{
		"depth0": `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"ask","id":"d0","arguments":{"task":"pay"}}]},{"text":"done"}]},"tools":[{"name":"ask","kind":"agent","agent":"depth1"}]}`,
		"depth1": `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"ask","id":"d1","arguments":{"task":"pay"}}]},{"text":"done"}]},"tools":[{"name":"ask","kind":"agent","agent":"depth2"}]}`,
		"depth2": `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"pay","id":"c1"}]},{"text":"done"}]},"tools":[{"name":"pay","approval":"always"}]}`,
	} {
		if _, err := ann.PutAgent(t.Context(), name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "depth0", Input: api.Text("pay me")}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := root.ID
	for range 2 {
		parent := id
		awaitSetting(t, func() bool {
			page, err := ann.List(t.Context(), url.Values{"parent": {parent}})
			if err == nil && len(page.Items) == 1 {
				id = page.Items[0].ID
			}
			return id != parent
		})
	}
	s.await(ann, id, "waiting_approval")
	forked, err := bob.Fork(t.Context(), id, api.ForkRequest{Turn: new(0)})
	if err != nil {
		t.Fatal(err)
	}
	s.await(ann, forked.ID, "waiting_approval")
	for what, id := range map[string]string{"the run two levels below": id, "its fork": forked.ID} {
		_, err := ann.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}})
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeForbidden {
			t.Errorf("%s: the submitter of the root approves: %v", what, err)
		}
	}
	if _, err := bob.Signal(t.Context(), id, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
		t.Errorf("another approver approves: %v", err)
	}
	s.await(ann, root.ID, "completed")
}
