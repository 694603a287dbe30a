package webhook_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// startTest stores a test event of the tenant acme with a start time, as a gateway does.
func (f *fixture) startTest(began time.Time) (id string) {
	f.Helper()
	id = webhook.NewTestID(began)
	endpoint := state.Webhook{URL: "https://one.example/", Secret: state.SecretReferences{"secret://NEW"}}
	data, err := json.Marshal(webhook.Test{Endpoint: endpoint, At: state.At(began)})
	if err != nil {
		f.Fatal(err)
	}
	if err := f.store.PutDocument(f.Context(), state.WebhookTestsOf("acme"), id, data); err != nil {
		f.Fatal(err)
	}
	if err := f.store.PutTimer(f.Context(), webhook.TestTimer("acme", id), time.Now()); err != nil {
		f.Fatal(err)
	}
	return id
}

func (f *fixture) testOf(id string) api.WebhookTest {
	f.Helper()
	data, err := f.store.Document(f.Context(), state.WebhookTestsOf("acme"), id)
	if err != nil {
		f.Fatal(err)
	}
	var t webhook.Test
	if err := json.Unmarshal(data, &t); err != nil {
		f.Fatal(err)
	}
	return t.View(id, time.Now())
}

// If the worker of a test dies, another sends it with the same id. A test that no worker takes for too long is
// dropped.
func TestTestEventAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.startTest(time.Now())
		if claims, err := f.store.ClaimTimers(t.Context(), webhook.Kind, 9, 30*time.Second); err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		f.work(20*time.Second, f.sender())
		if got := f.testOf(id); got.Status != api.TestPending {
			t.Errorf("while the claim of a dead worker lasts: %+v", got)
		}
		f.work(20*time.Second, f.sender())
		if got := f.testOf(id); got.Status != api.TestDelivered || got.ResponseStatus != http.StatusOK {
			t.Errorf("after it: %+v", got)
		}
		got := f.receiver.delivered()
		if want := "evt_" + id[len("test_"):] + "_1"; len(got) != 1 || got[0].header.Get("webhook-id") != want || got[0].event.Data.Tenant != "acme" {
			t.Errorf("delivered %+v, want %s", got, want)
		}

		// The worker died after it had stored the result, and before it had dropped the timer.
		if err := f.store.PutTimer(t.Context(), webhook.TestTimer("acme", id), time.Now()); err != nil {
			t.Fatal(err)
		}
		f.work(5*time.Second, f.sender())
		if n := len(f.receiver.delivered()); n != 1 {
			t.Errorf("a test with a result is sent again: %d deliveries", n)
		}

		late := f.startTest(time.Now().Add(-10 * time.Minute))
		f.work(5*time.Second, f.sender())
		if got := f.testOf(late); got.Status != api.TestFailed || got.Error == "" || got.Worker != "" {
			t.Errorf("a test that no worker has taken: %+v", got)
		}
		if n := len(f.receiver.delivered()); n != 1 {
			t.Errorf("%d deliveries, want 1", n)
		}
		if all, err := f.store.ListTimers(t.Context(), "acme", webhook.Kind, "", 9); err != nil || len(all) > 0 {
			t.Errorf("timers are left: %v, %v", all, err)
		}
	})
}

// The log says that a failed test is not retried. It still has the failure of one of the tenant's events within
// the same minute.
func TestFailedTestIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int { return -1 }
		id := f.startTest(time.Now())
		sender := f.sender()
		f.work(5*time.Second, sender)
		if got := f.testOf(id); got.Status != api.TestFailed || !strings.Contains(got.Error, "no route") || got.EndedAt.IsZero() {
			t.Errorf("the failed test is %+v", got)
		}
		log := f.log.String()
		if strings.Count(log, "test="+id) != 1 || !strings.Contains(log, "no route") || !strings.Contains(log, "host=one.example:443") {
			t.Errorf("the log lacks the failed test %s:\n%s", id, log)
		}
		if strings.Contains(log, "retry") || strings.Contains(log, "WARN") {
			t.Errorf("the log has more about a failed test than its failure:\n%s", log)
		}
		f.end(f.run(first, "https://down.example/").ID, "done")
		f.work(5*time.Second, sender)
		if log := f.log.String(); strings.Count(log, "webhook does not accept events") != 1 || !strings.Contains(log, "host=down.example:443") {
			t.Errorf("the log lacks the failed event:\n%s", log)
		}
	})
}

// A test that is deleted during its attempt stays deleted. One that is deleted before it is not sent. Both are done.
func TestTestEventOfDeletedTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.startTest(time.Now())
		f.receiver.answer = func(int, *http.Request) int {
			if err := f.store.DeleteDocument(t.Context(), state.WebhookTestsOf("acme"), id); err != nil {
				t.Error(err)
			}
			return http.StatusOK
		}
		f.work(5*time.Second, f.sender())
		if names, err := f.store.DocumentNames(t.Context(), state.WebhookTestsOf("acme")); err != nil || len(names) > 0 || len(f.receiver.delivered()) != 1 {
			t.Errorf("tests are left: %v, %v", names, err)
		}
		before := f.startTest(time.Now())
		if err := f.store.DeleteDocument(t.Context(), state.WebhookTestsOf("acme"), before); err != nil {
			t.Fatal(err)
		}
		f.work(5*time.Second, f.sender())
		if all, err := f.store.ListTimers(t.Context(), "acme", webhook.Kind, "", 9); err != nil || len(all) > 0 || len(f.receiver.delivered()) != 1 {
			t.Errorf("timers are left: %v, %v; %d deliveries", all, err, len(f.receiver.delivered()))
		}
	})
}
