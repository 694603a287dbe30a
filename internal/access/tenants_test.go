package access_test

import (
	"context"
	"encoding/json"
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
