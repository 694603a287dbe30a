package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// tenantFresh is the time that cached settings of a tenant stay valid.
const tenantFresh = 2 * time.Second

// Tenants keeps the settings of tenants. It is safe for concurrent use.
type Tenants struct {
	store     state.Documents
	byDefault string
	now       func() time.Time
	added     func(name string)

	mu    sync.Mutex
	fresh map[string]readTenant
}

type readTenant struct {
	tenant api.TenantSettings
	at     time.Time
}

// NewTenants returns the tenants of a deployment. The one by default is always there.
func NewTenants(store state.Documents, byDefault string) *Tenants {
	return &Tenants{store: store, byDefault: byDefault, now: time.Now, added: func(string) {}, fresh: map[string]readTenant{}}
}

// OnAdded has fn called for each tenant that this process stores. It must not block, and is set
// before the first use.
func (t *Tenants) OnAdded(fn func(name string)) { t.added = fn }

// Put stores the settings of a tenant. They count everywhere within two seconds.
func (t *Tenants) Put(ctx context.Context, name string, settings api.TenantSettings) error {
	if err := CheckTenant(name); err != nil {
		return err
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := t.store.PutDocument(ctx, state.TenantDocument, name, data); err != nil {
		return err
	}
	t.forget(name)
	return nil
}

// addPlain stores a tenant without settings, and returns those that another process has stored in
// the meantime.
func (t *Tenants) addPlain(ctx context.Context, name string) (api.TenantSettings, error) {
	if err := CheckTenant(name); err != nil {
		return api.TenantSettings{}, err
	}
	err := t.store.ReplaceDocument(ctx, state.TenantDocument, name, nil, json.RawMessage("{}"))
	if errors.Is(err, state.ErrChanged) {
		return t.Read(ctx, name)
	}
	if err == nil {
		t.added(name)
	}
	return api.TenantSettings{}, err
}

// Delete removes the settings of a tenant, which then has those of one without any. Its
// runs and agents stay. ErrNotFound if it has none.
func (t *Tenants) Delete(ctx context.Context, name string) error {
	if _, err := t.store.Document(ctx, state.TenantDocument, name); err != nil {
		return err
	}
	if err := t.store.DeleteDocument(ctx, state.TenantDocument, name); err != nil {
		return err
	}
	t.forget(name)
	return nil
}

func (t *Tenants) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fresh, name)
}

// List returns the settings of all tenants that have some, by name.
func (t *Tenants) List(ctx context.Context) (map[string]api.TenantSettings, error) {
	all, err := t.store.Documents(ctx, state.TenantDocument)
	if err != nil {
		return nil, err
	}
	tenants := make(map[string]api.TenantSettings, len(all))
	for name, data := range all {
		var settings api.TenantSettings
		if err := json.Unmarshal(data, &settings); err != nil {
			return nil, fmt.Errorf("decode tenant %s: %w", name, err)
		}
		tenants[name] = settings
	}
	return tenants, nil
}

// Names returns the names of all tenants that have settings.
func (t *Tenants) Names(ctx context.Context) ([]string, error) {
	all, err := t.store.Documents(ctx, state.TenantDocument)
	return slices.Collect(maps.Keys(all)), err
}

// Read returns the settings of a tenant from the store, or state.ErrNotFound.
func (t *Tenants) Read(ctx context.Context, name string) (api.TenantSettings, error) {
	data, err := t.store.Document(ctx, state.TenantDocument, name)
	if err != nil {
		return api.TenantSettings{}, err
	}
	var settings api.TenantSettings
	if err := json.Unmarshal(data, &settings); err != nil {
		return api.TenantSettings{}, fmt.Errorf("decode tenant %s: %w", name, err)
	}
	return settings, nil
}

// Settings returns the settings of a tenant, at most two seconds old. It stores a tenant without
// settings, so that code that visits all tenants finds it.
func (t *Tenants) Settings(ctx context.Context, name string) (api.TenantSettings, error) {
	now := t.now()
	t.mu.Lock()
	r, known := t.fresh[name]
	t.mu.Unlock()
	if known && now.Sub(r.at) < tenantFresh {
		return r.tenant, nil
	}
	settings, err := t.Read(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		err = nil
		if name != t.byDefault && name != state.DefaultTenant {
			settings, err = t.addPlain(ctx, name)
		}
	}
	if err != nil {
		return api.TenantSettings{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) >= maxFresh {
		clear(t.fresh)
	}
	t.fresh[name] = readTenant{tenant: settings, at: now}
	return settings, nil
}
