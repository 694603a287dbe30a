package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The list of tenants names the secrets that a tenant has: without a list, the secrets of the deployment belong to the
// tenant default only.
func TestSecretsOfTenants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		secrets []api.TenantSecret
		want    string
	}{
		{"default", nil, "any"},
		{"default", []api.TenantSecret{}, "none"},
		{"acme", nil, "own"},
		{"acme", []api.TenantSecret{}, "none"},
		{"acme", []api.TenantSecret{{Name: "CRM", Hosts: []string{"a.example"}}, {Name: "X"}}, "CRM=a.example,X"},
	} {
		if got := secretsAllowed(api.Tenant{Name: c.name, TenantSettings: api.TenantSettings{Secrets: c.secrets}}); got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.name, c.secrets, got, c.want)
		}
	}
}

// The words none, any, default and own have their meaning alone only, else they are names like others.
func TestWordsOfTenantLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want []string }{
		{[]string{"none"}, []string{}},
		{[]string{"any"}, nil},
		{[]string{}, []string{}},
		{[]string{"none", "a"}, []string{"none", "a"}},
		{[]string{"any", "a"}, []string{"any", "a"}},
		{[]string{"a", "none"}, []string{"a", "none"}},
	} {
		if diff := cmp.Diff(c.want, listOf(c.given)); diff != "" {
			t.Errorf("%q:\n%s", c.given, diff)
		}
	}
	if diff := cmp.Diff([]api.TenantStream{{Name: "default"}, {Name: "LOGS"}}, streamsOf([]string{"default", "LOGS"})); diff != "" {
		t.Errorf("streams:\n%s", diff)
	}
	var s api.TenantSettings
	(&tenantsPutCmd{Secret: []string{"own", "CRM"}}).change(&s)
	if diff := cmp.Diff([]api.TenantSecret{{Name: "own"}, {Name: "CRM"}}, s.Secrets); diff != "" {
		t.Errorf("secrets:\n%s", diff)
	}
}

// A list that is given replaces the list before, and those without a flag stay. That matters most for the secrets of
// the webhook: one that has leaked must not sign events any longer.
func TestTenantListsAreReplaced(t *testing.T) {
	t.Parallel()
	c := atGateway(t, memstore.New(memstore.Config{}))
	want := api.TenantSettings{}
	put := func(args ...string) {
		t.Helper()
		if _, err := says(t, c, append([]string{"tenants", "put", "acme"}, args...)...); err != nil {
			t.Fatal(err)
		}
		got, err := c.Tenant(t.Context(), "acme")
		if diff := cmp.Diff(want, got.TenantSettings); err != nil || diff != "" {
			t.Errorf("after %q: %v\n%s", args, err, diff)
		}
	}
	first, second := "https://1.1.1.1/first", "https://1.1.1.1/second"
	want.Webhook = &state.Webhook{URL: first, Secret: state.SecretReferences{"secret://OLD"}}
	put("--webhook", first, "--webhook-secret", "OLD")
	want.Webhook.Secret = state.SecretReferences{"secret://NEW", "secret://OLD"}
	put("--webhook-secret", "NEW,secret://OLD")
	want.Webhook.Secret = state.SecretReferences{"secret://NEW"}
	put("--webhook-secret", "NEW")
	want.Webhook.Events = []state.EntryType{"run.finished", "run.waiting"}
	put("--webhook-event", "run.finished,run.waiting")
	want.Webhook.Events = []state.EntryType{"run.waiting"}
	put("--webhook-event", "run.waiting")
	want.Webhook.URL = second
	put("--webhook", second)

	want.ProviderTools, want.Streams = []string{"web_search"}, []api.TenantStream{{Name: "ORDERS", Subjects: []string{"orders.new", "orders.paid"}}, {Name: "LOGS"}}
	put("--provider-tool", "web_search", "--stream", "ORDERS=orders.new,ORDERS=orders.paid,LOGS")
	want.ProviderTools, want.Streams = []string{"anthropic/*"}, []api.TenantStream{{Name: "LOGS"}}
	put("--provider-tool", "anthropic/*", "--stream", "LOGS")
	want.Streams = []api.TenantStream{}
	put("--stream", "none")
	want.ProviderTools, want.Streams, want.Webhook = nil, nil, nil
	put("--provider-tool", "any", "--stream", "default", "--webhook", "none")
}

// A tenant whose settings cannot be read is not changed: the settings that the command does not name would be lost. Only
// a tenant that does not exist has none, and --replace requires none.
func TestTenantsPutAfterAFailedRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		code    string
		replace bool
		written string
	}{
		{http.StatusServiceUnavailable, api.CodeStoreUnavailable, false, ""},
		{http.StatusForbidden, api.CodeForbidden, false, ""},
		{http.StatusNotFound, api.CodeNotFound, false, ""},
		{http.StatusNotFound, api.CodeTenantNotFound, false, "suspended"},
		{http.StatusServiceUnavailable, api.CodeStoreUnavailable, true, "suspended"},
	} {
		written := ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				problem(w, c.status, c.code)
				return
			}
			var settings api.TenantSettings
			if err := json.NewDecoder(r.Body).Decode(&settings); err != nil {
				t.Error(err)
			}
			if written = "not suspended"; settings.Suspended {
				written = "suspended"
			}
			fmt.Fprint(w, `{"name":"acme"}`)
		}))
		args := []string{"tenants", "put", "acme", "--suspended"}
		if c.replace {
			args = append(args, "--replace")
		}
		_, err := says(t, api.New(s.URL), args...)
		s.Close()
		if written != c.written || (err == nil) != (c.written != "") {
			t.Errorf("%d %s, --replace %t: %v, and %q was written, want %q", c.status, c.code, c.replace, err, written, c.written)
		}
	}
}
