package main

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
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
