package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A test event has a timer of the same kind as the events of runs, so the same workers take it with the same
// bounds. The name of the timer is the id of the test, and a document has the address and the result.

const (
	testPrefix = "test_"

	// testWindow is the time within which a worker must begin the only attempt of a test. Its author waits for
	// it.
	testWindow = 5 * time.Minute
)

// Test is the document of a test event. Result is nil until the attempt has been made.
type Test struct {
	Endpoint state.Webhook `json:"endpoint"`
	At       state.Time    `json:"at"`
	Result   *testResult   `json:"result,omitempty"`
}

type testResult struct {
	At      state.Time    `json:"at"`
	Worker  string        `json:"worker"`
	Status  int           `json:"status,omitempty"` // of the response; 0 if there was none
	Latency time.Duration `json:"latency,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// NewTestID returns a new id of a test that begins at a time.
func NewTestID(at time.Time) string {
	return testPrefix + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
}

// TestBegan returns the time at which the test with an id began, and whether the id is that of a test.
func TestBegan(id string) (time.Time, bool) {
	u, err := ulid.ParseStrict(strings.TrimPrefix(id, testPrefix))
	return u.Timestamp(), err == nil && isTest(id)
}

func isTest(name string) bool { return strings.HasPrefix(name, testPrefix) }

// TestTimer returns the timer of a test.
func TestTimer(tenant, id string) state.TimerID {
	return state.TimerID{Tenant: tenant, Kind: Kind, Name: id}
}

// View returns the test with an id as the API shows it at the time now: as failed if no worker has made the
// attempt in time.
func (t Test) View(id string, now time.Time) api.WebhookTest {
	v := api.WebhookTest{ID: id, Host: toolspec.HostPort(t.Endpoint.URL), Status: api.TestPending, CreatedAt: t.At}
	switch r := t.Result; {
	case r != nil:
		v.Status, v.EndedAt, v.Worker, v.ResponseStatus, v.LatencyMS, v.Error = api.TestDelivered, r.At, r.Worker, r.Status, r.Latency.Milliseconds(), r.Error
		if r.Error != "" {
			v.Status = api.TestFailed
		}
	case now.Sub(t.At.Time) > testWindow+time.Minute:
		v.Status, v.Error = api.TestFailed, "no worker made the attempt: check that workers run, and that the receiver accepts other events"
	}
	return v
}

// actOnTest sends a test event once, and stores the result. If the attempt must wait, it
// returns the time of the next look, else the zero time.
func (s *Sender) actOnTest(ctx context.Context, tenant, id string, now time.Time) (time.Time, error) {
	data, err := s.store.Document(ctx, state.WebhookTestsOf(tenant), id)
	if errors.Is(err, state.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	var t Test
	if err := json.Unmarshal(data, &t); err != nil || t.Result != nil || now.Sub(t.At.Time) > testWindow {
		return time.Time{}, nil //nolint:nilerr // no attempt can succeed
	}
	e, err := sample(tenant, strings.TrimPrefix(id, testPrefix), t.At, t.Endpoint)
	if err != nil {
		return time.Time{}, err
	}
	at, reason := s.enter(ctx, address{tenant, t.Endpoint.URL}, now)
	if reason != "" {
		return at, ctx.Err()
	}
	got, err := s.sendAndLeave(ctx, tenant, e, now)
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	t.Result = &testResult{At: state.At(now.Add(got.latency)), Worker: s.cfg.Worker, Status: got.status, Latency: got.latency}
	if err != nil {
		t.Result.Error = describe(err)
		s.cfg.Log.Info("webhook does not accept test event", "error", err, "tenant", tenant, "host", toolspec.HostPort(e.endpoint.URL), "test", id,
			"hint", "if the error names a setting of the tenant or a secret, have that corrected; otherwise repair the receiver, or correct the URL of the webhook. Then start another test: a test is sent once")
	}
	done, err := json.Marshal(t)
	if err != nil {
		return time.Time{}, err
	}
	err = s.store.ReplaceDocument(ctx, state.WebhookTestsOf(tenant), id, data, done)
	if errors.Is(err, state.ErrChanged) { // it was deleted, or another worker was first
		err = nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("store result of test: %w", err)
	}
	return time.Time{}, nil
}
