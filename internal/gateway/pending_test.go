package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pending waits until the pending events of a client are as wanted, and returns them.
func pending(t *testing.T, c *api.Client, want func([]api.PendingEvent) bool) []api.PendingEvent {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := c.PendingEvents(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if want(page.Items) {
			return page.Items
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("pending: %+v", page.Items)
		}
	}
}

// An event is pending from the end of its run until its receiver accepts it, with its delivery attempts so far.
func TestPendingEvents(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	ids := make(chan string, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ids <- r.Header.Get("webhook-id")
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
		cfg.WebhookTimes = webhook.Times{Look: 5 * time.Millisecond, FirstPause: 50 * time.Millisecond}
	})
	if page, err := s.client.PendingEvents(t.Context(), "", 0); err != nil || len(page.Items) != 0 || page.NextCursor != nil {
		t.Fatalf("before a run: %+v, %v", page, err)
	}
	var runs []string
	began := time.Now().Add(-time.Second)
	for range 3 {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{
			Agent: "hello", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL + "/?token=hush", Secret: state.SecretReferences{"secret://EVENTS"}},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run.ID)
	}
	slices.Sort(runs)
	got := pending(t, s.client, func(all []api.PendingEvent) bool {
		return len(all) == 3 && !slices.ContainsFunc(all, func(e api.PendingEvent) bool { return e.Attempts < 2 || e.Reason != api.PendingFailed })
	})
	for i, e := range got {
		if e.RunID != runs[i] || e.Agent != "hello" || e.Type != "run.finished" || "http://"+e.Host != receiver.URL || e.LastError != "the receiver answered 503 Service Unavailable" {
			t.Errorf("pending: %+v", e)
		}
		if e.Since.Before(began) || e.LastAttemptAt.Before(e.Since.Time) || !e.NextAttemptAt.After(e.LastAttemptAt.Time) {
			t.Errorf("pending since %v, tried at %v, again at %v", e.Since, e.LastAttemptAt, e.NextAttemptAt)
		}
	}
	_, _, raw := s.call("GET", "/v1/webhooks/pending", "")
	if strings.Contains(fmt.Sprint(raw), "hush") {
		t.Errorf("the list has a token: %v", raw)
	}
	var paged []string
	for cursor, more := "", true; more; {
		page, err := s.client.PendingEvents(t.Context(), cursor, 2)
		if err != nil || len(page.Items) > 2 {
			t.Fatalf("page: %+v, %v", page, err)
		}
		for _, e := range page.Items {
			paged = append(paged, e.RunID)
		}
		if more = page.NextCursor != nil; more {
			cursor = *page.NextCursor
		}
	}
	if !slices.Equal(paged, runs) {
		t.Errorf("in pages the events are of %v, want %v", paged, runs)
	}
	for _, cursor := range []string{"x", "run_x.1", runs[0], runs[0] + ".x"} {
		_, err := s.client.PendingEvents(t.Context(), cursor, 0)
		refused(t, "the cursor "+cursor, err, api.CodeInvalidCursor)
	}

	// The event of a deleted run is no longer pending.
	if err := s.client.Delete(t.Context(), runs[0]); err != nil {
		t.Fatal(err)
	}
	if page, err := s.client.PendingEvents(t.Context(), "", 0); err != nil || len(page.Items) != 2 || page.Items[0].RunID != runs[1] {
		t.Errorf("after the deletion of a run: %+v, %v", page, err)
	}
	tried := map[string]int{}
	for _, e := range pending(t, s.client, func(all []api.PendingEvent) bool { return len(all) == 2 }) {
		tried[e.ID] = e.Attempts
	}
	// An attempt for the deleted run may be under way. The receiver refuses it while the others are tried twice more.
	pending(t, s.client, func(all []api.PendingEvent) bool {
		return !slices.ContainsFunc(all, func(e api.PendingEvent) bool { return e.Attempts < tried[e.ID]+2 })
	})
	mended.Store(true)
	pending(t, s.client, func(all []api.PendingEvent) bool { return len(all) == 0 })
	close(ids)
	var delivered []string
	for id := range ids {
		delivered = append(delivered, id)
	}
	slices.Sort(delivered)
	if want := []string{got[1].ID, got[2].ID}; !slices.Equal(delivered, want) {
		t.Errorf("delivered %v, want %v", delivered, want)
	}
}

// An event that its receiver refuses for good is a dead letter and not pending. A replay makes it pending from
// that time, and later events of the run wait for it.
func TestPendingEventOfReplay(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusGone)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
		cfg.WebhookTimes = webhook.Times{Look: 5 * time.Millisecond, FirstPause: 20 * time.Millisecond}
	})
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{
		Agent: "hello", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Secret: state.SecretReferences{"secret://EVENTS"}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	letter := s.letters(1)[0]
	pending(t, s.client, func(all []api.PendingEvent) bool { return len(all) == 0 })
	status.Store(http.StatusBadGateway)
	before := time.Now().Add(-time.Second)
	if _, err := s.client.Replay(t.Context(), letter.Seq); err != nil {
		t.Fatal(err)
	}
	e := pending(t, s.client, func(all []api.PendingEvent) bool { return len(all) == 1 && all[0].Attempts > 0 })[0]
	if e.RunID != run.ID || e.Since.Before(before) || e.LastError != "the receiver answered 502 Bad Gateway" {
		t.Errorf("after a replay: %+v", e)
	}
	if l, err := s.client.Replay(t.Context(), letter.Seq); err != nil || l.Status != api.DeadReplaying {
		t.Errorf("a second replay: %+v, %v, want replaying", l, err)
	}
	if all := pending(t, s.client, func(all []api.PendingEvent) bool { return len(all) > 0 }); len(all) != 1 {
		t.Errorf("after two replays: %+v, want one series of attempts", all)
	}
}

// A tenant lists only its own events, with any role that may list its dead letters.
func TestPendingEventsOfTenants(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	w, err := worker.New(s.store, s.bus, worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": scripted.New()}, ShutdownGrace: time.Millisecond,
		WebhookTimes: webhook.Times{Look: 5 * time.Millisecond}, Getenv: func(string) string { return "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	runs := map[string]string{}
	for _, tenant := range []string{"acme", "acme2", "other"} {
		c := s.client(tenant, access.Author, access.Submitter)
		if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
			t.Fatal(err)
		}
		hook := &state.Webhook{URL: "https://" + tenant + ".example/?token=hush", Secret: state.SecretReferences{"secret://EVENTS"}}
		run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x"), Webhook: hook}, "")
		if err != nil {
			t.Fatal(err)
		}
		runs[tenant] = run.ID
	}
	for tenant, run := range runs {
		for _, role := range access.Roles() {
			c := s.client(tenant, role)
			_, refusal := c.Dead(t.Context(), 0, 0)
			if refusal != nil {
				_, err := c.PendingEvents(t.Context(), "", 0)
				refused(t, string(role), err, api.CodeForbidden)
				continue
			}
			all := pending(t, c, func(all []api.PendingEvent) bool { return len(all) > 0 && all[0].Attempts > 0 })
			if len(all) != 1 || all[0].RunID != run || all[0].Host != tenant+".example:443" || all[0].LastError == "" || strings.Contains(all[0].LastError, "hush") {
				t.Errorf("tenant %s as %s lists %+v, want the event of %s", tenant, role, all, run)
			}
		}
		// A cursor of another tenant's list, or an invalid one, does not reach its events.
		page, err := s.client(tenant, access.Viewer).PendingEvents(t.Context(), "run_00000000000000000000000000.1", 0)
		if err != nil || len(page.Items) != 1 || page.Items[0].RunID != run {
			t.Errorf("tenant %s lists %+v, %v with a foreign cursor", tenant, page.Items, err)
		}
	}
	if page, err := s.client("none", access.Viewer).PendingEvents(t.Context(), "", 0); err != nil || len(page.Items) != 0 {
		t.Errorf("a tenant without runs lists %+v, %v", page.Items, err)
	}
}
