package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// putsMeanwhile stores an admin's settings right after a reader has found none.
type putsMeanwhile struct {
	state.Store

	put func()
}

func (s *putsMeanwhile) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	data, err := s.Store.Document(ctx, kind, name)
	if put := s.put; put != nil {
		s.put = nil
		put()
	}
	return data, err
}

// The first use of a tenant does not overwrite settings that an admin stores concurrently.
func TestSettingsPutMeanwhile(t *testing.T) {
	t.Parallel()
	store := &putsMeanwhile{Store: memstore.New(memstore.Config{})}
	tenants := access.NewTenants(store, "default")
	store.put = func() {
		if err := tenants.Put(t.Context(), "acme", api.TenantSettings{FourEyes: true}, time.Now()); err != nil {
			t.Error(err)
		}
	}
	if got, err := tenants.Settings(t.Context(), "acme"); err != nil || !got.FourEyes {
		t.Errorf("settings %+v, %v, want four eyes", got, err)
	}
	if got, err := tenants.Read(t.Context(), "acme"); err != nil || !got.FourEyes {
		t.Errorf("stored settings %+v, %v, want four eyes", got, err)
	}
}

// A deleted tenant is suspended and keeps its restrictions, in the process that deleted it at once. Put ends that.
func TestDeletedTenant(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	tenants := access.NewTenants(store, "default")
	put := func(settings api.TenantSettings) {
		t.Helper()
		if err := tenants.Put(t.Context(), "acme", settings, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	settings := func(in *access.Tenants) api.TenantSettings {
		t.Helper()
		got, err := in.Settings(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	put(api.TenantSettings{FourEyes: true})
	settings(tenants)
	if err := tenants.Delete(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for _, in := range []*access.Tenants{tenants, access.NewTenants(store, "default")} {
		if got := settings(in); !got.Suspended || !got.FourEyes {
			t.Errorf("settings of a deleted tenant: %+v", got)
		}
	}
	if err := tenants.Delete(t.Context(), "acme"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a second deletion: %v", err)
	}
	put(api.TenantSettings{Review: true})
	if got := settings(tenants); got.Suspended || got.FourEyes || !got.Review {
		t.Errorf("settings of a tenant that was put again: %+v", got)
	}
	if names, err := store.DocumentNames(t.Context(), state.DeletedTenantDocument); err != nil || len(names) > 0 {
		t.Errorf("deleted tenants: %v, %v", names, err)
	}
}

// A default tenant that is deleted loses its settings and is not suspended: it exists without being stored.
func TestDeletedDefaultTenant(t *testing.T) {
	t.Parallel()
	for name, suspended := range map[string]bool{"house": false, state.DefaultTenant: false, "acme": true} {
		store := memstore.New(memstore.Config{})
		tenants := access.NewTenants(store, "house")
		if err := tenants.Put(t.Context(), name, api.TenantSettings{FourEyes: true}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got, err := tenants.Settings(t.Context(), name); err != nil || !got.FourEyes {
			t.Errorf("%s before: %+v, %v", name, got, err)
		}
		if err := tenants.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, in := range []*access.Tenants{tenants, access.NewTenants(store, "house")} {
			if got, err := in.Settings(t.Context(), name); err != nil || got.Suspended != suspended || got.FourEyes != suspended {
				t.Errorf("%s after its deletion: %+v, %v; want suspended %t", name, got, err, suspended)
			}
		}
	}
}

// A metadata key is indexed from the time at which a tenant added it, however often its settings change afterwards. A
// key that was removed and added again starts again.
func TestIndexedFrom(t *testing.T) {
	t.Parallel()
	tenants := access.NewTenants(memstore.New(memstore.Config{}), "default")
	now := time.Now()
	put := func(keys ...string) map[string]state.RunID {
		t.Helper()
		now = now.Add(time.Hour)
		if err := tenants.Put(t.Context(), "acme", api.TenantSettings{IndexedMetadata: keys}, now); err != nil {
			t.Fatal(err)
		}
		from, err := tenants.IndexedFrom(t.Context(), "acme")
		if err != nil || len(from) != len(keys) {
			t.Fatalf("indexed from %v, %v", from, err)
		}
		return from
	}
	first := put("a")
	second := put("a", "b")
	if second["a"] != first["a"] || second["b"] <= first["a"] {
		t.Errorf("indexed from %v, after %v", second, first)
	}
	put("b")
	if again := put("a", "b"); again["a"] <= second["a"] || again["b"] != second["b"] {
		t.Errorf("indexed from %v, after %v", again, second)
	}
}
