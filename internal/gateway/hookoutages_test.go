package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// forgetfulStore is a store that fails to read the settings of tenants while failing is true.
type forgetfulStore struct {
	state.Store

	failing atomic.Bool
}

func (s *forgetfulStore) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	if kind == state.TenantDocument && s.failing.Load() {
		return nil, errors.New("the store is away")
	}
	return s.Store.Document(ctx, kind, name)
}

// putStored writes a document of a hook past the gateway.
func (s *guarded) putStored(tenant, name, data string) {
	s.t.Helper()
	if err := s.store.PutDocument(s.t.Context(), state.HooksOf(tenant), name, json.RawMessage(data)); err != nil {
		s.t.Fatal(err)
	}
}

// While the store fails, a hook cannot be checked: it is neither refused nor is its delivery.
func TestHookSecretsInAnOutage(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	store := &forgetfulStore{Store: s.store.Store}
	s.store.Store = store
	s.putStored("acme", "triage", triage)
	operator := api.New(s.url, api.WithToken(s.key(access.AnyTenant, access.Admin, access.Author)), api.WithTenant("acme"))
	store.failing.Store(true)

	var settings api.HookSettings
	if err := json.Unmarshal([]byte(triage), &settings); err != nil {
		t.Fatal(err)
	}
	_, err := operator.PutHook(t.Context(), "other", settings)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeStoreUnavailable || p.RetryAfter == 0 {
		t.Errorf("PUT = %v, want %s with a time to retry", err, api.CodeStoreUnavailable)
	}
	if status, _, p := s.github("/v1/hooks/acme/triage", "a secret", "d-1", opened(1)); status != http.StatusServiceUnavailable || p.Code != api.CodeStoreUnavailable {
		t.Errorf("a delivery = %d %+v, want 503", status, p)
	}
}

// A hook whose secret the gateways lack is answered like one that does not exist.
func TestHookWithoutItsSecret(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	s.putStored("acme", "triage", strings.ReplaceAll(triage, "HOOK", "LOST"))
	want, _, _ := s.github("/v1/hooks/acme/none", "a secret", "d-1", opened(1))
	if status, _, p := s.github("/v1/hooks/acme/triage", "a secret", "d-1", opened(1)); status != want || status != http.StatusUnauthorized {
		t.Errorf("a delivery = %d %+v, want %d", status, p, want)
	}
}

// A stored document that cannot be decoded is no outage: a client that retries would do so for ever.
func TestDamagedDocument(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	viewer := s.client("acme", access.Viewer)
	for name, data := range map[string]string{"cut-off": `{"verify": "git`, "another-type": `{"verify": ["github"]}`} {
		s.putStored("acme", name, data)
		_, err := viewer.Hook(t.Context(), name)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != http.StatusInternalServerError || p.Code != api.CodeInternal || p.RetryAfter != 0 {
			t.Errorf("%s: GET = %v, want %s", name, err, api.CodeInternal)
		}
		if status, _, p := s.github("/v1/hooks/acme/"+name, "a secret", "d-1", opened(1)); status != http.StatusInternalServerError || p.Code != api.CodeInternal {
			t.Errorf("%s: a delivery = %d %+v, want 500", name, status, p)
		}
	}
}
