package access

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Only the exact text of a key authenticates.
func FuzzKey(f *testing.F) {
	keys := NewKeys(memstore.New(memstore.Config{}))
	text, key, err := keys.Create(f.Context(), KeySpec{Name: "n", Tenant: "acme", Roles: []Role{Approver}})
	if err != nil {
		f.Fatal(err)
	}
	id, secret, ok := parseKey(text)
	if !ok || id != key.ID {
		f.Fatalf("parseKey(%q) = %q, %t", text, id, ok)
	}
	for _, given := range []string{text, "", "tp_", "tp__", text + "_", "tp_" + id + "_", "tp_" + id + "_" + secret[1:], "Bearer " + text, "tp_" + id + "\x00_" + secret} {
		f.Add(given)
	}
	f.Fuzz(func(t *testing.T, given string) {
		who, err := keys.Authenticate(t.Context(), given)
		switch {
		case given == text && err != nil:
			t.Errorf("the key itself: %v", err)
		case given != text && (!errors.Is(err, ErrUnauthenticated) || who.Name != "" || len(who.Grants) > 0):
			t.Errorf("Authenticate(%q) = %+v, %v", given, who, err)
		case err != nil && len(err.Error()) > 1000:
			t.Errorf("the error for %q has %d bytes", given, len(err.Error()))
		}
	})
}

// Any claims that a provider signs yield known roles in valid tenants, or nothing.
func FuzzClaims(f *testing.F) {
	o, err := NewOIDC(OIDCConfig{Issuer: "https://login.example", Audience: "turnpike"})
	if err != nil {
		f.Fatal(err)
	}
	some, err := NewOIDC(OIDCConfig{Issuer: "https://login.example", Audience: "turnpike", Claims: `{"grants": claims.grants}`})
	if err != nil {
		f.Fatal(err)
	}
	for _, claims := range []string{
		`{"tenant":"acme","roles":["admin","nobody"]}`, `{"tenant":"*","roles":[]}`, `{"tenant":"ACME","roles":["viewer"]}`, `{"tenant":7,"roles":"viewer"}`,
		`{"grants":[{"tenant":"a","roles":["viewer"]},{"tenant":"b","roles":["author"]}]}`, `{"grants":[[]]}`, `{}`,
	} {
		f.Add(claims)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var claims map[string]any
		if json.Unmarshal([]byte(text), &claims) != nil {
			return
		}
		for _, o := range []*OIDC{o, some} {
			grants, err := o.grantsOf(claims)
			if err != nil && grants != nil {
				t.Errorf("%s gives %v in addition to %v", text, grants, err)
			}
			for _, g := range grants {
				if g.Tenant != AnyTenant && CheckTenant(g.Tenant) != nil {
					t.Errorf("%s gives the tenant %q", text, g.Tenant)
				}
			}
		}
	})
}
