package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// patientStore records the longest deadline of its calls.
type patientStore struct {
	state.Store

	longest time.Duration // the longest time given to a call; -1: unlimited
}

func (s *patientStore) note(ctx context.Context) {
	end, ok := ctx.Deadline()
	if !ok {
		s.longest = -1
	} else if s.longest >= 0 {
		s.longest = max(s.longest, time.Until(end))
	}
}

func (s *patientStore) Load(ctx context.Context, id state.RunID) (state.State, error) {
	s.note(ctx)
	return s.Store.Load(ctx, id)
}

func (s *patientStore) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	s.note(ctx)
	return s.Store.Document(ctx, kind, name)
}

func (s *patientStore) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	s.note(ctx)
	return s.Store.Documents(ctx, kind)
}

func (s *patientStore) Audit(ctx context.Context, tenant, cursor string, limit int) ([]json.RawMessage, string, error) {
	s.note(ctx)
	return s.Store.Audit(ctx, tenant, cursor, limit)
}

func (s *patientStore) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	s.note(ctx)
	return s.Store.List(ctx, f)
}

// While Redis hangs, every request is answered when its time budget is used up, with a Retry-After.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	redis, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	store := &patientStore{Store: redis}
	const budget = 50 * time.Millisecond
	g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: budget})
	if err != nil {
		t.Fatal(err)
	}
	keys := access.NewKeys(service.Budgeted(store))
	text, _, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: budget, Auth: access.Chain{Keys: keys}})
	if err != nil {
		t.Fatal(err)
	}
	store.longest = 0
	if err := redis.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const run = "/v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/runs", ""}, {"GET", "/v1/runs?status=failed", ""}, {"GET", run, ""}, {"GET", run + "/messages", ""}, {"GET", run + "/events", ""},
		{"DELETE", run, ""}, {"POST", run + "/cancel", ""}, {"POST", run + "/signals", `{"message":"hi"}`},
		{"POST", "/v1/runs", `{"agent":"a","input":"hi"}`}, {"POST", "/v1/runs?wait=1m", `{"agent":"a","input":"hi"}`},
		{"POST", "/v1/runs:batch", `{"runs":[{"agent":"a","input":"hi"}]}`}, {"GET", "/v1/agents", ""}, {"GET", "/readyz", ""},
		{"GET", "/v1/keys", ""}, {"GET", "/v1/tenants", ""}, {"GET", "/v1/audit", ""}, {"GET", "/v1/agents/a", ""},
	} {
		for i, h := range []http.Handler{g.Handler(), guarded.Handler()} {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1"+c.path, strings.NewReader(c.body))
			if i > 0 {
				r.Header.Set("Authorization", "Bearer "+text)
			}
			h.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || c.path != "/readyz" && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s %s = %d %s, Retry-After %q", c.method, c.path, w.Code, w.Body, w.Header().Get("Retry-After"))
			}
		}
	}
	if store.longest < 0 || store.longest > budget {
		t.Errorf("a store call had %s, want at most %s", store.longest, budget)
	}
}
