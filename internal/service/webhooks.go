package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxWebhookTests is the maximum number of tests of a tenant within webhookTestTime. Older tests are deleted.
	maxWebhookTests = 100
	webhookTestTime = time.Hour
)

// Webhooks reads the events that the webhooks of a tenant have not accepted yet, and makes test events.
type Webhooks struct{ *core }

// Pending returns a page of pending events, those of the oldest run first. It omits events of deleted runs, so a page
// may be shorter than its limit.
func (s *Webhooks) Pending(ctx context.Context, c access.Caller, p Page) (api.Page[api.PendingEvent], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	after := ""
	if p.Cursor != "" {
		var ok bool
		if after, ok = webhook.TimerAt(p.Cursor); !ok {
			return api.Page[api.PendingEvent]{}, invalidCursor()
		}
	}
	timers, err := s.store.ListTimers(ctx, c.Tenant, webhook.Kind, after, p.Limit+1)
	if err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	next := ""
	if len(timers) > p.Limit {
		timers = timers[:p.Limit]
		next = webhook.Cursor(timers[p.Limit-1].Name)
	}
	found, exist := make([]api.PendingEvent, len(timers)), make([]bool, len(timers))
	err = s.readEach(ctx, len(timers), func(ctx context.Context, i int) (err error) {
		found[i], exist[i], err = webhook.Pending(ctx, s.store, c.Tenant, timers[i])
		return err
	})
	if err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	items := make([]api.PendingEvent, 0, len(found))
	for i, e := range found {
		if exist[i] {
			items = append(items, e)
		}
	}
	return api.NewPage(items, next), nil
}

// Test stores a test event, which a worker sends to the endpoint in r, and returns it before it is sent: GetTest
// returns the result.
func (s *Webhooks) Test(ctx context.Context, c access.Caller, r api.WebhookTestRequest) (api.WebhookTest, error) {
	if err := s.permit(ctx, c, TestWebhook); err != nil {
		return api.WebhookTest{}, err
	}
	t, err := s.test(ctx, c.Tenant, state.Webhook{URL: r.URL, Secret: r.Secret})
	s.note(ctx, c, TestWebhook, t.Host, err)
	return t, err
}

func (s *Webhooks) test(ctx context.Context, tenant string, endpoint state.Webhook) (api.WebhookTest, error) {
	if err := endpoint.Check(); err != nil {
		return api.WebhookTest{}, invalid("%v", err)
	}
	if err := s.permittedWebhook(ctx, tenant, "", endpoint); err != nil {
		return api.WebhookTest{}, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.WebhookTest{}, err
	}
	if err := s.dropOldTests(ctx, tenant, now.Time); err != nil {
		return api.WebhookTest{}, err
	}
	id, t := webhook.NewTestID(now.Time), webhook.Test{Endpoint: endpoint, At: now}
	data, err := json.Marshal(t)
	if err != nil {
		return api.WebhookTest{}, err
	}
	// A worker that finds the timer without the document removes the timer.
	if err := s.store.PutDocument(ctx, state.WebhookTestsOf(tenant), id, data); err != nil {
		return api.WebhookTest{}, err
	}
	return t.View(id, now.Time), s.store.PutTimer(ctx, webhook.TestTimer(tenant, id), now.Time)
}

// dropOldTests deletes the old tests of a tenant, and returns a problem if there are too many newer ones.
func (s *Webhooks) dropOldTests(ctx context.Context, tenant string, now time.Time) error {
	names, err := s.store.DocumentNames(ctx, state.WebhookTestsOf(tenant))
	if err != nil {
		return err
	}
	var old []string
	for _, name := range names {
		if began, ok := webhook.TestBegan(name); !ok || now.Sub(began) > webhookTestTime {
			old = append(old, name)
		}
	}
	if len(names)-len(old) >= maxWebhookTests {
		return problem(conflict, api.CodeTooManyWebhookTests, "the tenant has made %d tests of webhooks within %s, at most %d are allowed: retry later", len(names)-len(old), webhookTestTime, maxWebhookTests)
	}
	return s.readEach(ctx, len(old), func(ctx context.Context, i int) error { return s.removeTest(ctx, tenant, old[i]) })
}

func (s *Webhooks) removeTest(ctx context.Context, tenant, id string) error {
	err := s.store.DeleteDocument(ctx, state.WebhookTestsOf(tenant), id)
	if errors.Is(err, state.ErrNotFound) {
		return nil // another request has deleted it
	}
	return err
}

// GetTest returns a test of a webhook, for an hour (webhookTestTime) after it was made.
func (s *Webhooks) GetTest(ctx context.Context, c access.Caller, id string) (api.WebhookTest, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.WebhookTest{}, err
	}
	missing := notFound(api.CodeWebhookTestNotFound, "there is no test %.64q of a webhook: make a new one; tests are kept for an hour", id)
	if _, ok := webhook.TestBegan(id); !ok {
		return api.WebhookTest{}, missing
	}
	data, err := s.store.Document(ctx, state.WebhookTestsOf(c.Tenant), id)
	if errors.Is(err, state.ErrNotFound) {
		return api.WebhookTest{}, missing
	}
	if err != nil {
		return api.WebhookTest{}, err
	}
	var t webhook.Test
	if err := json.Unmarshal(data, &t); err != nil {
		return api.WebhookTest{}, fmt.Errorf("decode test %s: %w", id, err)
	}
	now, err := s.clock.now(ctx)
	return t.View(id, now.Time), err
}

// removeAll deletes the tests of a tenant.
func (s *Webhooks) removeAll(ctx context.Context, tenant string) error {
	return s.eachDocument(ctx, state.WebhookTestsOf(tenant), func(ctx context.Context, id string) error { return s.removeTest(ctx, tenant, id) })
}
