package access_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A token of an end user is valid only while the API key that issued it may issue tokens of its tenant.
func TestTokenOfAKeyThatChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		field string // of the key
		value any
		valid bool
	}{
		"with the same role":            {"roles", []string{"issuer"}, true},
		"without the role":              {"roles", []string{"submitter"}, false},
		"with the role elsewhere":       {"tenant", "other", false},
		"with the role in every tenant": {"tenant", access.AnyTenant, true},
	} {
		store := memstore.New(memstore.Config{})
		open := func() (*access.Keys, *access.Tokens) { // as another process
			keys := access.NewKeys(store)
			return keys, access.NewTokens(store, keys, access.NewTenants(store, state.DefaultTenant))
		}
		keys, tokens := open()
		_, key, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Issuer}})
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := tokens.Create(t.Context(), access.TokenSpec{Tenant: "acme", Bound: access.Bound{User: "ada"}, Roles: []access.Role{access.Viewer}, Key: key.ID})
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.Document(t.Context(), state.KeyDocument, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		var stored map[string]any
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		stored[c.field] = c.value
		if data, err = json.Marshal(stored); err != nil {
			t.Fatal(err)
		}
		if err := store.PutDocument(t.Context(), state.KeyDocument, key.ID, data); err != nil {
			t.Fatal(err)
		}
		_, tokens = open()
		_, err = tokens.Authenticate(t.Context(), text)
		if refused := errors.Is(err, access.ErrUnauthenticated) && strings.Contains(err.Error(), "no longer has the role issuer"); c.valid && err != nil || !c.valid && !refused {
			t.Errorf("a key %s: Authenticate = %v, want the token to be valid: %t", name, err, c.valid)
		}
	}
}
