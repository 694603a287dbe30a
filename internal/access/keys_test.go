package access_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The store keeps a key without its secret, and only the whole text authenticates.
func TestKeys(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	keys := access.NewKeys(store)
	text, key, err := keys.Create(t.Context(), access.KeySpec{Name: "n", Tenant: "acme", Roles: []access.Role{access.Approver}})
	if err != nil {
		t.Fatal(err)
	}
	secret := text[strings.LastIndexByte(text, '_')+1:]
	if !strings.HasPrefix(text, "tp_"+key.ID+"_") || len(secret) < 50 {
		t.Errorf("the text of a key is %q, its id %q", text, key.ID)
	}
	stored, err := store.Documents(t.Context(), state.KeyDocument)
	if all, _ := json.Marshal(stored); err != nil || strings.Contains(string(all), secret) { //nolint:errchkjson // raw JSON
		t.Errorf("the store has the secret: %s, %v", all, err)
	}
	who, err := keys.Authenticate(t.Context(), text)
	if err != nil || who.Name != "key:"+key.ID {
		t.Fatalf("Authenticate = %+v, %v", who, err)
	}
	caller, err := who.In("", state.DefaultTenant)
	if err != nil || caller.Tenant != "acme" || !caller.May(access.Approver) || !caller.May(access.Viewer) || caller.May(access.Submitter, access.Admin) {
		t.Errorf("In = %+v, %v", caller, err)
	}
	for _, wrong := range []string{"", "tp_", text[:len(text)-1], text + "x", "tp_" + key.ID + "_", "tp_aaaaaaaaaaaaaaaa_" + secret, strings.ToUpper(text), strings.Repeat(text, 100)} {
		if who, err := keys.Authenticate(t.Context(), wrong); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("Authenticate(%.80q) = %+v, %v", wrong, who, err)
		}
	}
	if _, err := keys.Get(t.Context(), "other", key.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a key of another tenant: %v", err)
	}
	if _, err := keys.Revoke(t.Context(), "other", key.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("another tenant revokes a key: %v", err)
	}
	if _, err := keys.Revoke(t.Context(), "acme", key.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Authenticate(t.Context(), text); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a revoked key: %v", err)
	}
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memstore.New(memstore.Config{}))
		past := state.At(time.Now().Add(-time.Hour))
		if _, _, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: access.Roles(), ExpiresAt: past}); err == nil {
			t.Error("an expired key is created")
		}
		soon := state.At(time.Now().Add(20 * time.Millisecond))
		text, _, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: access.Roles(), ExpiresAt: soon})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(21 * time.Millisecond)
		if _, err := keys.Authenticate(t.Context(), text); !errors.Is(err, access.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("Authenticate with an expired key = %v", err)
		}
	})
}

// What cannot be a key is refused with the reason, and is not stored. Limits are part of what is allowed.
func TestKeysRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		store := memstore.New(memstore.Config{})
		keys, now := access.NewKeys(store), time.Now()
		for name, c := range map[string]struct {
			spec access.KeySpec
			want string // in the error; "" means that the key is created
		}{
			"longest name":   {access.KeySpec{Tenant: "acme", Name: strings.Repeat("n", 100)}, ""},
			"too long":       {access.KeySpec{Tenant: "acme", Name: strings.Repeat("n", 101)}, "the name of the key has 101 bytes, at most 100 are allowed"},
			"all tenants":    {access.KeySpec{Tenant: access.AnyTenant}, ""},
			"no tenant":      {access.KeySpec{}, "name"},
			"invalid tenant": {access.KeySpec{Tenant: "A B"}, "A B"},
			"expires now":    {access.KeySpec{Tenant: "acme", ExpiresAt: state.At(now)}, "which is not in the future"},
			"expires soon":   {access.KeySpec{Tenant: "acme", ExpiresAt: state.At(now.Add(time.Millisecond))}, ""},
		} {
			_, key, err := keys.Create(t.Context(), c.spec)
			if _, invalid := errors.AsType[*access.InvalidKeyError](err); invalid != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if err == nil {
				if _, err := keys.Revoke(t.Context(), access.AnyTenant, key.ID); err != nil {
					t.Error(err)
				}
			}
		}
		if left, err := keys.List(t.Context(), access.AnyTenant); err != nil || len(left) > 0 {
			t.Errorf("stored are %+v, %v", left, err)
		}
	})
}

// A tenant sees its own keys, the oldest first. A key that another process revokes or creates is known within two
// seconds, and one that expires is not used again.
func TestKeysOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		here, there := access.NewKeys(store), access.NewKeys(store)
		create := func(tenant, name string, expires time.Duration) (text, id string) {
			t.Helper()
			time.Sleep(time.Millisecond) // of the bubble
			spec := access.KeySpec{Tenant: tenant, Name: name, Roles: access.Roles()}
			if expires > 0 {
				spec.ExpiresAt = state.At(time.Now().Add(expires))
			}
			text, key, err := there.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return text, key.ID
		}
		first, id := create("acme", "1", 0)
		create("other", "2", 0)
		for _, name := range []string{"3", "4", "5", "6"} {
			create("acme", name, 0)
		}
		expires, _ := create("acme", "7", time.Second)
		for tenant, want := range map[string]string{"acme": "134567", "other": "2", access.AnyTenant: "1234567", "none": ""} {
			all, err := here.List(t.Context(), tenant)
			got := ""
			for _, k := range all {
				got += k.Name
			}
			if err != nil || got != want {
				t.Errorf("the keys of %s are %s, %v; want %s", tenant, got, err, want)
			}
		}
		works := func(text string) bool {
			_, err := here.Authenticate(t.Context(), text)
			if err != nil && !errors.Is(err, access.ErrUnauthenticated) {
				t.Error(err)
			}
			return err == nil
		}
		if !works(first) || !works(expires) {
			t.Fatal("the keys are refused")
		}
		time.Sleep(time.Second - time.Millisecond)
		if !works(expires) {
			t.Error("a key is refused before it expires")
		}
		time.Sleep(time.Millisecond)
		if works(expires) {
			t.Error("a key that expires now is accepted")
		}
		if _, err := there.Revoke(t.Context(), "acme", id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if works(first) {
			t.Error("a key that another process has revoked is accepted two seconds after its last use")
		}
	})
}

// Roles in one tenant give no rights in another.
func TestPrincipalIn(t *testing.T) {
	t.Parallel()
	both := access.Principal{Name: "p", Grants: []access.Grant{{Tenant: "one", Roles: []access.Role{access.Admin}}, {Tenant: "two", Roles: []access.Role{access.Viewer}}}}
	everywhere := access.Principal{Name: "p", Grants: []access.Grant{{Tenant: access.AnyTenant, Roles: []access.Role{access.Operator}}}}
	tests := []struct {
		who    access.Principal
		tenant string
		want   string // the tenant, or empty if refused
		admin  bool
	}{
		{both, "one", "one", true},
		{both, "two", "two", false},
		{both, "", "", false}, // the default tenant is neither of the two
		{both, "three", "", false},
		{both, "*", "", false},
		{everywhere, "any", "any", false},
		{everywhere, "", state.DefaultTenant, false},
		{everywhere, "*", "", false},
		{everywhere, "A B", "", false},
		{access.Principal{}, "one", "", false},
	}
	for _, tt := range tests {
		c, err := tt.who.In(tt.tenant, state.DefaultTenant)
		if _, refused := errors.AsType[*access.TenantError](err); refused != (tt.want == "") || c.Tenant != tt.want || c.May(access.Admin) != tt.admin {
			t.Errorf("%+v in %q = %+v, %v; want %q", tt.who.Grants, tt.tenant, c, err, tt.want)
		}
	}
	if _, err := everywhere.In("A B", state.DefaultTenant); err == nil || !strings.Contains(err.Error(), `"A B": the name is not valid`) {
		t.Errorf("an invalid name: %v", err)
	}
	for _, who := range []access.Principal{{}, {Grants: []access.Grant{{Tenant: "one"}}}} {
		if _, err := who.In("one", state.DefaultTenant); err == nil || err.Error() != `you have no role in tenant "one": ask an admin for one, or name another tenant` {
			t.Errorf("a principal without roles: %v", err)
		}
	}
}
