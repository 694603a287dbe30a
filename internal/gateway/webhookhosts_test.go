package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A tenant's allowed hosts apply to its webhooks: where one is set, and when a worker sends an event.
func TestHostsHoldForWebhooks(t *testing.T) {
	t.Parallel()
	got := make(chan string, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("ce-subject") }))
	t.Cleanup(receiver.Close)
	var s *deployment
	s = newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
		cfg.Policy = func(ctx context.Context, tenant string) (policy.Policy, error) {
			return policy.NewReader(s.store).Of(ctx, tenant) // without a cache of earlier settings
		}
	})
	hosts := func(all ...string) {
		t.Helper()
		if _, err := s.client.PutTenant(t.Context(), state.DefaultTenant, api.TenantSettings{Hosts: all}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(url string) *state.Webhook {
		return &state.Webhook{URL: url, Secret: state.SecretReferences{"secret://EVENTS"}}
	}
	hosts(strings.TrimPrefix(receiver.URL, "http://"))
	elsewhere, err := json.Marshal(of("https://evil.example/x"))
	if err != nil {
		t.Fatal(err)
	}
	run := `{"agent": "hello", "input": "x", "webhook": ` + string(elsewhere) + `}`
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/v1/agents/a", `{"model": {"provider": "scripted", "responses": [{"text": "x"}]}, "webhook": ` + string(elsewhere) + `}`, "webhook.url: host evil.example:443"},
		{"POST", "/v1/runs", run, "webhook.url: host evil.example:443"},
		{"POST", "/v1/runs:batch", `{"runs": [` + run + `]}`, "webhook.url: host evil.example:443"},
		{"PUT", "/v1/schedules/s", `{"cron": "@daily", "run": ` + run + `}`, "run.webhook.url: host evil.example:443"},
		{"POST", "/v1/webhooks/tests", `{"url": "https://evil.example/x", "secret": "secret://EVENTS"}`, "url: host evil.example:443"},
	} {
		code, _, p := s.call(c.method, c.path, c.body)
		if detail, _ := p["detail"].(string); code != http.StatusForbidden || p["code"] != api.CodeNotPermitted || !strings.Contains(detail, c.want) {
			t.Errorf("%s %s: %d %v %s, want %q", c.method, c.path, code, p["code"], detail, c.want)
		}
	}
	if _, err := s.client.PutTenant(t.Context(), state.DefaultTenant, api.TenantSettings{Hosts: []string{"a.example"}, Webhook: of("https://evil.example/x")}); err == nil || !strings.Contains(err.Error(), "webhook.url") {
		t.Errorf("a tenant with a webhook outside its list: %v", err)
	}

	// The list became narrower while the run waited: its event is a dead letter, and a replay sends it once the
	// list allows it again.
	begun, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "gated", Input: api.Text("x"), Webhook: of(receiver.URL)}, "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run waits", func() bool {
		r, err := s.client.Get(t.Context(), begun.ID)
		return err == nil && r.Status == string(state.Waiting)
	})
	hosts("a.example")
	if _, err := s.client.Signal(t.Context(), begun.ID, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
		t.Fatal(err)
	}
	var letters api.Page[api.DeadLetter]
	eventually(t, "the event is a dead letter", func() bool {
		letters, err = s.client.Dead(t.Context(), 0, 0)
		return err == nil && len(letters.Items) == 1
	})
	if l := letters.Items[0]; l.Kind != "webhook" || !strings.Contains(l.Cause, "is not among those that agents of tenant default may reach") {
		t.Errorf("the dead letter is %+v", l)
	}
	hosts(strings.TrimPrefix(receiver.URL, "http://"))
	if _, err := s.client.Replay(t.Context(), letters.Items[0].Seq); err != nil {
		t.Fatal(err)
	}
	if subject := <-got; subject != begun.ID {
		t.Errorf("an event of %s was sent, want only that of the replay, of %s", subject, begun.ID)
	}
}
