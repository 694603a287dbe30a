package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// testEnded waits until a test of a webhook has ended.
func testEnded(t *testing.T, c *api.Client, id string) api.WebhookTest {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := c.WebhookTest(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != api.TestPending {
			return got
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("the test has not ended: %+v", got)
		}
	}
}

// A worker sends a test event signed with the webhook's secret, and the caller reads the receiver's response.
func TestWebhookTest(t *testing.T) {
	t.Parallel()
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	var status, requests atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		hook, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Error(err)
			return
		}
		var event webhook.Body
		if err := json.Unmarshal(body, &event); err != nil || event.Data.Metadata["test"] != "true" || event.Data.Tenant != state.DefaultTenant {
			t.Errorf("delivered %s, %v", body, err)
		}
		if err := hook.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient = receiver.Client()
		cfg.WebhookTimes = webhook.Times{Look: 5 * time.Millisecond}
		cfg.Getenv = func(name string) string {
			if name == "TURNPIKE_SECRET_EVENTS" {
				return key
			}
			return ""
		}
	})
	start := func(url, secret string) api.WebhookTest {
		t.Helper()
		began, err := s.client.TestWebhook(t.Context(), api.WebhookTestRequest{URL: url, Secret: api.SecretReferences{"secret://" + secret}})
		if err != nil || began.Status != api.TestPending || "http://"+began.Host != receiver.URL || !began.EndedAt.IsZero() {
			t.Fatalf("started %+v, %v", began, err)
		}
		return testEnded(t, s.client, began.ID)
	}
	status.Store(http.StatusNoContent)
	if got := start(receiver.URL+"/?token=hush", "EVENTS"); got.Status != api.TestDelivered || got.ResponseStatus != 204 || got.Worker != "w1" || got.Error != "" || got.LatencyMS < 0 || got.EndedAt.IsZero() {
		t.Errorf("delivered: %+v", got)
	}
	for code, want := range map[int64]string{500: "the receiver answered 500 Internal Server Error", 410: "the receiver answered 410"} {
		before := requests.Load()
		status.Store(code)
		if got := start(receiver.URL, "EVENTS"); got.Status != api.TestFailed || got.ResponseStatus != int(code) || !strings.HasPrefix(got.Error, want) {
			t.Errorf("with %d: %+v", code, got)
		}
		if n := requests.Load() - before; n != 1 {
			t.Errorf("with %d the worker made %d requests, want 1", code, n)
		}
	}
	if got := start(receiver.URL, "OTHER"); got.Status != api.TestFailed || got.ResponseStatus != 0 || !strings.Contains(got.Error, "OTHER") {
		t.Errorf("without a secret: %+v", got)
	}
	// Tests are neither pending events nor dead letters.
	if page, err := s.client.PendingEvents(t.Context(), "", 0); err != nil || len(page.Items) > 0 {
		t.Errorf("pending: %+v, %v", page.Items, err)
	}
	if page, err := s.client.Dead(t.Context(), 0, 0); err != nil || len(page.Items) > 0 {
		t.Errorf("dead letters: %+v, %v", page.Items, err)
	}
	for body, want := range map[string]string{
		`{"url":"h","secret":"secret://X"}`:                               "url is not an http or https URL",
		`{"secret":"secret://X"}`:                                         "url is not an http or https URL",
		`{"url":"https://example.com","secret":"my secret"}`:              "never the secret itself",
		`{"url":"https://example.com","secret":"secret://X","events":[]}`: "events",
	} {
		code, _, p := s.call("POST", "/v1/webhooks/tests", body)
		if detail, _ := p["detail"].(string); code != http.StatusBadRequest || !strings.Contains(detail, want) {
			t.Errorf("%s: %d %s, want %q", body, code, detail, want)
		}
	}
	for _, id := range []string{"x", "test_x", "test_01ARZ3NDEKTSV4RRFFQ69G5FAA"} {
		_, err := s.client.WebhookTest(t.Context(), id)
		refused(t, id, err, api.CodeWebhookTestNotFound)
	}
}

// The worker's guard blocks a test event to its own network, like any other event.
func TestWebhookTestIsGuarded(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the worker sent a request to its own network") }))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.WebhookTimes, cfg.Getenv = guard.Public(), webhook.Times{Look: 5 * time.Millisecond}, func(string) string { return "a secret" }
	})
	began, err := s.client.TestWebhook(t.Context(), api.WebhookTestRequest{URL: receiver.URL, Secret: api.SecretReferences{"secret://EVENTS"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := testEnded(t, s.client, began.ID); got.Status != api.TestFailed || !strings.Contains(got.Error, "TURNPIKE_HTTP_ALLOW") || got.ResponseStatus != 0 {
		t.Errorf("ended: %+v", got)
	}
}

// A tenant reads only its own tests. Roles that may set a webhook may start them, at most a hundred an hour.
func TestWebhookTestsOfTenants(t *testing.T) {
	t.Parallel()
	s := newGuarded(t) // without workers, so no request is made
	request := api.WebhookTestRequest{URL: "https://example.com", Secret: api.SecretReferences{"secret://EVENTS"}}
	began, err := s.client("other", access.Submitter).TestWebhook(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.client("acme", access.Viewer).WebhookTest(t.Context(), began.ID)
	refused(t, "a test of another tenant", err, api.CodeWebhookTestNotFound)
	if got, err := s.client("other", access.Viewer).WebhookTest(t.Context(), began.ID); err != nil || got.Status != api.TestPending {
		t.Errorf("the tenant's own test: %+v, %v", got, err)
	}
	for _, role := range access.Roles() {
		_, err := s.client("acme", role).TestWebhook(t.Context(), request)
		if may := role == access.Submitter || role == access.Author || role == access.Admin; may != (err == nil) {
			t.Errorf("%s starts a test: %v", role, err)
		}
	}
	c := s.client("many", access.Submitter)
	old := webhook.NewTestID(time.Now().Add(-2 * time.Hour))
	if err := s.store.PutDocument(t.Context(), state.WebhookTestsOf("many"), old, json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := c.TestWebhook(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.TestWebhook(t.Context(), request)
	refused(t, "one more test", err, api.CodeTooManyWebhookTests)
	names := func() []string {
		names, err := s.store.DocumentNames(context.Background(), state.WebhookTestsOf("many"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if n := len(names()); n != 100 {
		t.Errorf("%d tests are stored, want 100: the old one is removed", n)
	}
	// Deleting the tenant removes them.
	admin := s.client("*", access.Admin)
	if _, err := admin.PutTenant(t.Context(), "many", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteTenant(t.Context(), "many"); err != nil {
		t.Fatal(err)
	}
	if n := len(names()); n != 0 {
		t.Errorf("%d tests are left of a deleted tenant", n)
	}
}
