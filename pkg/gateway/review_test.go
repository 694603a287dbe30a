package gateway_test

import (
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
)

// Where a tenant wants review no run uses what one principal has written, until another one
// who has looked at exactly that publishes it.
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
		_, err := ann.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: client.Text("x")}, "")
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
		t.Errorf("a run of what is published: %v", err)
	}
	// What runs use stays while the next draft waits, and a draft can be taken back.
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
