package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// In a tenant with review, no run uses a definition before a principal other than its author has seen exactly
// that draft and publishes it.
func TestReview(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	ann, bob, eve := s.client("acme", access.Author, access.Submitter), s.client("acme", access.Author), s.client("other", access.Author)
	refused := func(what string, err error, code string) {
		t.Helper()
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	save := func(text string) {
		t.Helper()
		a, err := ann.PutAgent(t.Context(), "a", []byte(`{"model":{"provider":"scripted","responses":[{"text":"`+text+`"}]}}`))
		if err != nil || a.Status != api.StatusDraft {
			t.Fatalf("saved %+v, %v, want a draft", a, err)
		}
	}
	submit := func() error {
		_, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
		return err
	}
	save("one")
	refused("a run of the draft", submit(), api.CodeAgentNotFound)
	_, unsaved := s.do("POST", "/v1/drafts", s.key("acme", access.Author, access.Submitter), "", `{"definition":{"model":{"provider":"scripted"}},"input":"x"}`)
	refused("a run of what is not saved", &unsaved, api.CodeForbidden)
	seen, err := bob.AgentDraft(t.Context(), "a")
	if err != nil || seen.Version != 1 || seen.Status != api.StatusDraft {
		t.Fatalf("draft %+v, %v", seen, err)
	}
	_, err = ann.PublishAgent(t.Context(), "a", seen.Hash)
	refused("who wrote it publishes it", err, api.CodeForbidden)
	_, err = eve.PublishAgent(t.Context(), "a", seen.Hash)
	refused("somebody of another tenant", err, api.CodeDraftNotFound)
	_, err = s.client("acme", access.Approver).PublishAgent(t.Context(), "a", seen.Hash)
	refused("somebody without the role", err, api.CodeForbidden)
	save("two")
	_, err = bob.PublishAgent(t.Context(), "a", seen.Hash)
	refused("another draft than the one that was looked at", err, api.CodeStaleDraft)
	list, err := bob.AgentDrafts(t.Context())
	if err != nil || len(list) != 1 || list[0].Hash == seen.Hash {
		t.Fatalf("drafts %+v, %v", list, err)
	}
	if others, err := eve.AgentDrafts(t.Context()); err != nil || len(others) != 0 {
		t.Errorf("drafts of another tenant %+v, %v", others, err)
	}
	if a, err := bob.PublishAgent(t.Context(), "a", list[0].Hash); err != nil || a.Version != 1 || a.Status != api.StatusPublished {
		t.Fatalf("published %+v, %v", a, err)
	}
	_, err = bob.PublishAgent(t.Context(), "a", list[0].Hash)
	refused("once more", err, api.CodeDraftNotFound)
	if err := submit(); err != nil {
		t.Errorf("a run of the published version: %v", err)
	}
	// Runs keep the published version while the next draft waits, and a draft can be discarded.
	save("three")
	if a, err := ann.Agent(t.Context(), "a"); err != nil || a.Version != 1 || a.Status != api.StatusPublished {
		t.Errorf("agent %+v, %v", a, err)
	}
	if err := ann.DiscardAgentDraft(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	audit, err := s.client("acme", access.Admin).Audit(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]int{}
	for _, e := range audit.Items {
		done[e.Action]++
	}
	if done["agent.put"] != 3 || done["agent.publish"] != 1 || done["agent.discard"] != 1 {
		t.Errorf("audit %v", done)
	}
}

// The author of a draft stays its author when another principal saves the same content.
func TestReviewSavedTwice(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	ann, bob, carl := s.client("acme", access.Author), s.client("acme", access.Author), s.client("acme", access.Author)
	for _, c := range []*api.Client{ann, bob, bob} {
		if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := carl.AgentDraft(t.Context(), "a")
	if err != nil || len(d.Authors) != 2 || d.By.Principal != d.Authors[0] {
		t.Fatalf("draft %+v, %v", d, err)
	}
	for who, c := range map[string]*api.Client{"first": ann, "second": bob} {
		_, err := c.PublishAgent(t.Context(), "a", d.Hash)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeForbidden {
			t.Errorf("the %s author publishes: %v", who, err)
		}
	}
	if _, err := carl.PublishAgent(t.Context(), "a", d.Hash); err != nil {
		t.Errorf("another principal publishes: %v", err)
	}
}

// readsTogether makes two readers of a draft read it at the same time, once.
type readsTogether struct {
	state.Store

	readers sync.WaitGroup
	left    atomic.Int64
}

func (s *readsTogether) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	data, err := s.Store.Document(ctx, kind, name)
	if kind == state.DraftsOf("acme") && s.left.Add(-1) >= 0 {
		s.readers.Done()
		s.readers.Wait()
	}
	return data, err
}

// Two principals who save the same draft at the same time are both its authors.
func TestReviewSavedAtOnce(t *testing.T) {
	t.Parallel()
	store := &readsTogether{Store: memstore.New(memstore.Config{})}
	s := newGuardedOn(t, store)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	ann, bob := s.client("acme", access.Author), s.client("acme", access.Author)
	store.readers.Add(2)
	store.left.Store(2)
	var saves sync.WaitGroup
	for _, c := range []*api.Client{ann, bob} {
		saves.Go(func() {
			if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
				t.Error(err)
			}
		})
	}
	saves.Wait()
	d, err := ann.AgentDraft(t.Context(), "a")
	if err != nil || len(d.Authors) != 2 {
		t.Errorf("draft %+v, %v, want two authors", d, err)
	}
}

// losesDrafts fails to delete drafts a given number of times.
type losesDrafts struct {
	state.Store

	left atomic.Int64
}

func (s *losesDrafts) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	if data == nil && s.left.Add(-1) >= 0 {
		return errors.New("no answer")
	}
	return s.Store.ReplaceDocument(ctx, kind, name, was, data)
}

// Publishing a draft again after an unknown outcome creates one version.
func TestReviewPublishedTwice(t *testing.T) {
	t.Parallel()
	store := &losesDrafts{Store: memstore.New(memstore.Config{})}
	store.left.Store(1)
	s := newGuardedOn(t, store)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	ann, bob := s.client("acme", access.Author), s.client("acme", access.Author)
	d, err := ann.PutAgent(t.Context(), "a", []byte(talker))
	if err != nil {
		t.Fatal(err)
	}
	waits, err := bob.AgentDraft(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bob.PublishAgent(t.Context(), "a", waits.Hash); err == nil {
		t.Error("the draft stayed, and the response did not say so")
	}
	if a, err := bob.PublishAgent(t.Context(), "a", waits.Hash); err != nil || a.Version != 1 {
		t.Errorf("published again: version %d, %v, want 1", a.Version, err)
	}
}

// savesMeanwhile saves another draft while one is published.
type savesMeanwhile struct {
	state.Store

	save func()
}

func (s *savesMeanwhile) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	v, err := s.Store.PutAgent(ctx, tenant, name, definition, always)
	s.save()
	return v, err
}

// A draft that is saved while the previous one is published keeps waiting.
func TestReviewSavedMeanwhile(t *testing.T) {
	t.Parallel()
	store := &savesMeanwhile{Store: memstore.New(memstore.Config{})}
	s := newGuardedOn(t, store)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	ann, bob := s.client("acme", access.Author), s.client("acme", access.Author)
	save := func(text string) {
		if _, err := ann.PutAgent(t.Context(), "a", []byte(`{"model":{"provider":"scripted","responses":[{"text":"`+text+`"}]}}`)); err != nil {
			t.Error(err)
		}
	}
	save("one")
	d, err := bob.AgentDraft(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	store.save = func() { save("two") }
	if _, err := bob.PublishAgent(t.Context(), "a", d.Hash); err != nil {
		t.Fatal(err)
	}
	if waits, err := bob.AgentDraft(t.Context(), "a"); err != nil || waits.Hash == d.Hash {
		t.Errorf("draft %+v, %v, want the later one", waits, err)
	}
}

// Without authentication all callers are the same principal, so a draft waits for another one.
func TestReviewWithoutKeys(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	c := api.New(server.URL)
	if _, err := c.PutTenant(t.Context(), "default", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	a, err := c.PutAgent(t.Context(), "a", []byte(`{"model":{"provider":"scripted"}}`))
	if err != nil || a.Status != api.StatusDraft {
		t.Fatalf("saved %+v, %v, want a draft", a, err)
	}
	d, err := c.AgentDraft(t.Context(), "a")
	if err != nil || d.By.Principal != "anonymous" {
		t.Fatalf("draft %+v, %v", d, err)
	}
	if _, err := c.PublishAgent(t.Context(), "a", d.Hash); err == nil || !strings.Contains(err.Error(), "anonymous has saved this draft") {
		t.Errorf("the author publishes: %v", err)
	}
	if err := c.DiscardAgentDraft(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// After review is switched on, an unreviewed definition from before does not run: neither a run of a draft, nor
// an agent that names one.
func TestReviewSwitchedOn(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	key := s.key("acme", access.Author, access.Submitter, access.Operator)
	ann := api.New(s.url, api.WithToken(key))
	script := func(name, rest string) []byte {
		return []byte(`{"name":"` + name + `","model":{"provider":"scripted","responses":[` + rest + `}`)
	}
	var drafted api.Run
	s.post("/v1/drafts", key, `{"input":"x","definition":`+string(script("odd", `{"text":"unread"},{"text":"unread, too"}]}`))+`}`, &drafted)
	s.await(ann, drafted.ID, "completed")
	// A gateway that died before it removed the draft from the list.
	listed := "draft-0123456789abcdef0123"
	if _, err := s.store.PutAgent(t.Context(), "acme", listed, script("odd", `{"text":"unread"}]}`), false); err != nil {
		t.Fatal(err)
	}
	for name, definition := range map[string][]byte{
		"odd":    script("odd", `{"text":"read"}]}`),
		"parent": script("parent", `{"tool_calls":[{"name":"ask","id":"d1","arguments":{"task":"x"}},{"name":"listed","id":"d2","arguments":{"task":"x"}}]},{"text":"done"}]},"tools":[{"name":"ask","kind":"agent","agent":"`+drafted.Agent+`"},{"name":"listed","kind":"agent","agent":"`+listed+`"}]`),
	} {
		if _, err := ann.PutAgent(t.Context(), name, definition); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "odd", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.await(ann, saved.ID, "completed")
	poisoned := bus.DeadLetter{Kind: bus.DeadPoisoned, Tenant: "acme", Run: state.RunID(drafted.ID), Agent: drafted.Agent, Cause: "x"}
	st, err := s.store.Load(t.Context(), poisoned.Run)
	if err != nil {
		t.Fatal(err)
	}
	poisoned.Version = st.Version
	if err := s.bus.DeadLetter(t.Context(), poisoned); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}

	refused := func(what string, err error) {
		t.Helper()
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeNotPermitted {
			t.Errorf("%s: %v, want %s", what, err, api.CodeNotPermitted)
		}
	}
	fork := api.ForkRequest{Turn: new(0), Input: api.Text("another task")}
	_, err = ann.Fork(t.Context(), drafted.ID, fork)
	refused("a fork", err)
	_, err = ann.Signal(t.Context(), drafted.ID, api.SignalRequest{Message: api.Text("go on")})
	refused("a message", err)
	_, err = ann.Replay(t.Context(), 1)
	refused("a replay", err)
	_, err = ann.Submit(t.Context(), api.SubmitRequest{Agent: listed, Input: api.Text("x")}, "")
	refused("a submission", err)
	_, err = ann.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: listed, Input: api.Text("x")}}}, "")
	refused("a batch", err)
	_, err = ann.PutSchedule(t.Context(), "nightly", api.ScheduleSettings{Cron: "@daily", Run: api.SubmitRequest{Agent: listed, Input: api.Text("x")}})
	refused("a schedule", err)
	if p, ok := errors.AsType[*api.Problem](err); ok && !strings.HasPrefix(p.Detail, "run: "+listed+" is an unreviewed draft") {
		t.Errorf("a schedule: %s", p.Detail)
	}

	above, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "parent", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.await(ann, above.ID, "completed")
	all, err := ann.List(t.Context(), url.Values{"parent": {above.ID}})
	if err != nil || len(all.Items) != 0 {
		t.Errorf("runs that the parent has started: %+v, %v", all.Items, err)
	}

	// An agent that was saved before counts as reviewed.
	if _, err := ann.Fork(t.Context(), saved.ID, fork); err != nil {
		t.Errorf("a fork of a run of the saved version: %v", err)
	}
	if _, err := ann.Signal(t.Context(), saved.ID, api.SignalRequest{Message: api.Text("go on")}); err != nil {
		t.Errorf("a message to it: %v", err)
	}
}

// post sends a request that must succeed, and decodes the response.
func (s *guarded) post(path, token, body string, answer any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("POST %s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		s.t.Fatal(err)
	}
}
