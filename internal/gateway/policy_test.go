package gateway_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Only an admin sets what a tenant's agents may use. The setting itself is validated, and is enforced when a
// definition is saved.
func TestAgentsUseWhatTheirTenantMay(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin, author := s.key("*", access.Admin), s.key("acme", access.Author)
	const definition = `{"model": {"provider": "openai", "name": "gpt-5", "base_url": "https://models.example/v1", "api_key": "secret://K"},
		"tools": [{"name": "t", "kind": "http", "url": "https://tools.example/", "headers": {"X-Key": "secret://K"}}, {"kind": "mcp", "command": ["sh", "-c", "x"]}]}`
	if status, p := s.do(http.MethodPut, "/v1/agents/a", author, "", definition); status != http.StatusCreated {
		t.Fatalf("without settings: %d %+v", status, p)
	}
	for settings, want := range map[string]string{
		`{"hosts": ["tools.example"]}`:                              "model.base_url: host models.example:443",
		`{"models": ["claude-*"]}`:                                  "model: model openai/gpt-5 is not among those",
		`{"mcp_commands": []}`:                                      `tools[1].command: program "sh"`,
		`{"secrets": [{"name": "K", "hosts": ["models.example"]}]}`: "tools[0]: secret K is for the hosts models.example only and must not be sent to tools.example:443",
	} {
		if status, p := s.do(http.MethodPut, "/v1/tenants/acme", admin, "", settings); status != http.StatusOK {
			t.Fatalf("settings %s: %d %+v", settings, status, p)
		}
		field, _, _ := strings.Cut(strings.Trim(settings, `{"`), `"`)
		status, p := s.do(http.MethodPut, "/v1/agents/a", author, "", definition)
		if status != http.StatusForbidden || p.Code != api.CodeNotPermitted || !strings.Contains(p.Detail, want) || !strings.Contains(p.Detail, "change "+field+" of tenant acme") {
			t.Errorf("%s: %d %s; want a refusal with %q", settings, status, p.Detail, want)
		}
		if status, _ := s.do(http.MethodPut, "/v1/agents/a", s.key("other", access.Author), "", definition); status >= 300 {
			t.Errorf("%s: %d for another tenant", settings, status)
		}
	}
	if status, p := s.do(http.MethodPut, "/v1/tenants/acme", admin, "", `{"hosts": ["http://x"]}`); status != http.StatusBadRequest || !strings.Contains(p.Detail, "hosts[0]") {
		t.Errorf("an invalid pattern: %d %+v", status, p)
	}
	tenant, err := s.client("*", access.Admin).Tenant(t.Context(), "acme")
	if err != nil || tenant.Hosts != nil && tenant.Models != nil {
		t.Errorf("tenant %+v, %v", tenant, err)
	}
}

// The default tenant exists without being stored: a request to delete it that is refused deletes nothing of it.
func TestUnstoredTenantKeepsItsData(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	own := s.client(state.DefaultTenant, access.Author, access.Operator, access.Submitter)
	_, err := own.PutAgent(t.Context(), "a", []byte(`{"model": {"provider": "scripted", "responses": [{"text": "hi"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	nightly := api.ScheduleSettings{Cron: "@daily", Run: api.SubmitRequest{Agent: "a", Input: json.RawMessage(`"go"`)}}
	if _, err := own.PutSchedule(t.Context(), "nightly", nightly); err != nil {
		t.Fatal(err)
	}
	if err := s.client("*", access.Admin).DeleteTenant(t.Context(), state.DefaultTenant); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("deletion: %v", err)
	}
	if _, err := own.Schedule(t.Context(), "nightly"); err != nil {
		t.Errorf("the schedule after the refusal: %v", err)
	}
}

// After a tenant is deleted, its keys and runs keep its restrictions until the tenant is created again.
func TestDeletedTenantIsSuspended(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin := s.client("*", access.Admin)
	if _, err := admin.PutTenant(t.Context(), "jail", api.TenantSettings{Hosts: []string{"a.example"}}); err != nil {
		t.Fatal(err)
	}
	key := s.key("jail", access.Author, access.Submitter)
	put := func() (int, api.Problem) {
		return s.do(http.MethodPut, "/v1/agents/a", key, "", `{"model": {"provider": "scripted", "responses": [{"text": "hi"}]}}`)
	}
	if status, p := put(); status >= 300 {
		t.Fatalf("before: %d %s", status, p.Detail)
	}
	if err := admin.DeleteTenant(t.Context(), "jail"); err != nil {
		t.Fatal(err)
	}
	if status, p := put(); status != http.StatusForbidden || p.Code != api.CodeTenantSuspended {
		t.Errorf("after its deletion: %d %s", status, p.Code)
	}
	if _, err := admin.Tenant(t.Context(), "jail"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the deleted tenant: %v", err)
	}
	p, err := policy.NewReader(s.store).Of(t.Context(), "jail")
	if err != nil || p.Host("b.example:443") == nil {
		t.Errorf("its runs may reach any host, %v", err)
	}
	if _, err := admin.PutTenant(t.Context(), "jail", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	if status, p := put(); status >= 300 {
		t.Errorf("put again: %d %s", status, p.Detail)
	}
}

// In a suspended tenant only admins of the deployment make changes: no admin of the tenant, and no other role of the
// deployment.
func TestWhoChangesASuspendedTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Suspended: true}); err != nil {
		t.Fatal(err)
	}
	newKey, definition := `{"roles":["viewer"]}`, `{"model":{"provider":"scripted","responses":[{"text":"x"}]}}`
	for name, c := range map[string]struct {
		key, method, path, body string
		want                    int
	}{
		"an admin of the deployment":            {s.key("*", access.Admin), http.MethodPost, "/v1/keys", newKey, http.StatusCreated},
		"an admin of the tenant":                {s.key("acme", access.Admin), http.MethodPost, "/v1/keys", newKey, http.StatusForbidden},
		"all roles in the tenant":               {s.key("acme", access.Roles()...), http.MethodPut, "/v1/agents/a", definition, http.StatusForbidden},
		"an author of the deployment":           {s.key("*", access.Author), http.MethodPut, "/v1/agents/b", definition, http.StatusForbidden},
		"an admin of the deployment, as author": {s.key("*", access.Admin, access.Author), http.MethodPut, "/v1/agents/c", definition, http.StatusCreated},
	} {
		status, p := s.do(c.method, c.path, c.key, "acme", c.body)
		if status != c.want || status == http.StatusForbidden && p.Code != api.CodeTenantSuspended {
			t.Errorf("%s: %d %s, want %d", name, status, p.Code, c.want)
		}
	}
}

// An admin of the deployment whose request names a tenant lists and revokes the keys of that tenant only.
func TestKeysOfTheNamedTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin := s.key("*", access.Admin)
	made, err := s.client("acme", access.Admin).CreateKey(t.Context(), api.KeyRequest{Roles: []string{"viewer"}})
	if err != nil {
		t.Fatal(err)
	}
	has := func(tenant string) bool {
		keys, err := api.New(s.url, api.WithToken(admin), api.WithTenant(tenant)).Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(keys, func(k api.APIKey) bool { return k.ID == made.ID })
	}
	for tenant, want := range map[string]bool{"other": false, "acme": true, "": true} {
		if has(tenant) != want {
			t.Errorf("the keys for tenant %q have the key: %t", tenant, !want)
		}
	}
	if status, p := s.do(http.MethodDelete, "/v1/keys/"+made.ID, admin, "other", ""); status != http.StatusNotFound || p.Code != api.CodeKeyNotFound || !has("acme") {
		t.Errorf("revoked for another tenant: %d %s, and it is listed: %t", status, p.Code, has("acme"))
	}
	if status, p := s.do(http.MethodDelete, "/v1/keys/"+made.ID, admin, "acme", ""); status != http.StatusNoContent || has("") {
		t.Errorf("revoked for its tenant: %d %s, and it is listed: %t", status, p.Code, has(""))
	}
}
