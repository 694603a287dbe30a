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
	tenant storedTenant
	at     time.Time
}

// storedTenant is the document of a tenant.
type storedTenant struct {
	api.TenantSettings

	// IndexedFrom has the first run of each key in IndexedMetadata, see IndexedFrom.
	IndexedFrom map[string]state.RunID `json:"indexed_from,omitempty"`
}

const (
	// indexDelay is the time from a change of the settings until all processes create runs by them:
	// more than tenantFresh, with what clocks and requests in flight may need.
	indexDelay = time.Minute

	// putTries is the number of times that Put replaces settings that others are changing.
	putTries = 20
)

// NewTenants returns the tenants of a deployment. byDefault and state.DefaultTenant exist without being stored.
func NewTenants(store state.Documents, byDefault string) *Tenants {
	return &Tenants{store: store, byDefault: byDefault, now: time.Now, added: func(string) {}, fresh: map[string]readTenant{}}
}

// OnAdded sets fn, which Settings and IndexedFrom call when they store a tenant on its first use; Put does not call
// it. fn may be called concurrently and must not block. OnAdded must be called before any other method.
func (t *Tenants) OnAdded(fn func(name string)) { t.added = fn }

// Put stores the settings of a tenant; now is the time of the store. Settings of every process returns them within
// two seconds; workers apply the lists of resources as policy.Reader says. The error reports an invalid name, or wraps
// state.ErrChanged if other requests keep changing the settings.
func (t *Tenants) Put(ctx context.Context, name string, settings api.TenantSettings, now time.Time) error {
	if err := CheckTenant(name); err != nil {
		return err
	}
	for range putTries {
		was, err := t.store.Document(ctx, state.TenantDocument, name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		var before storedTenant
		if was != nil {
			if err := json.Unmarshal(was, &before); err != nil {
				return fmt.Errorf("decode tenant %s: %w", name, err)
			}
		}
		data, err := json.Marshal(storedTenant{settings, indexedFrom(before.IndexedFrom, settings.IndexedMetadata, now)})
		if err != nil {
			return err
		}
		err = t.store.ReplaceDocument(ctx, state.TenantDocument, name, was, data)
		if errors.Is(err, state.ErrChanged) {
			continue
		}
		if err == nil && was == nil {
			err = t.store.DeleteDocument(ctx, state.DeletedTenantDocument, name)
		}
		t.forget(name)
		return err
	}
	return fmt.Errorf("put tenant %s: other requests changed the tenant at the same time: retry (%w)", name, state.ErrChanged)
}

// indexedFrom returns the first run of each of some keys. A key that was indexed before keeps its
// own: all runs since have it.
func indexedFrom(before map[string]state.RunID, keys []string, now time.Time) map[string]state.RunID {
	from := map[string]state.RunID{}
	for _, key := range keys {
		if from[key] = before[key]; from[key] == "" {
			from[key] = state.FirstIDAt(now.Add(indexDelay))
		}
	}
	return from
}

// addPlain stores a tenant without settings, and returns those that another process has stored in
// the meantime.
func (t *Tenants) addPlain(ctx context.Context, name string) (storedTenant, error) {
	if err := CheckTenant(name); err != nil {
		return storedTenant{}, err
	}
	err := t.store.ReplaceDocument(ctx, state.TenantDocument, name, nil, json.RawMessage("{}"))
	if errors.Is(err, state.ErrChanged) {
		return t.read(ctx, name)
	}
	if err == nil {
		t.added(name)
	}
	return storedTenant{}, err
}

// Delete removes the settings of a tenant. The tenant is then suspended until Put stores it again, and the last
// settings apply to its keys and to runs that have not ended. Other processes learn this within two seconds. A default
// tenant, which exists without being stored, is not suspended: it only loses its settings. The runs and agents stay.
// Delete returns state.ErrNotFound if the tenant is not stored.
func (t *Tenants) Delete(ctx context.Context, name string) error {
	last, err := t.read(ctx, name)
	if err != nil {
		return err
	}
	last.Suspended = true
	data, err := json.Marshal(last)
	if err != nil {
		return err
	}
	if !t.always(name) {
		if err := t.store.PutDocument(ctx, state.DeletedTenantDocument, name, data); err != nil {
			return err
		}
	}
	if err := t.store.DeleteDocument(ctx, state.TenantDocument, name); err != nil {
		return err
	}
	t.forget(name)
	return nil
}

// always reports whether a tenant exists without being stored.
func (t *Tenants) always(name string) bool { return name == t.byDefault || name == state.DefaultTenant }

func (t *Tenants) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fresh, name)
}

// List returns all stored tenants with their settings, by name. A tenant that was used but never configured has the
// zero settings. Deleted tenants, and default tenants that Put has not stored, are missing.
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

// Names returns the names of all stored tenants, see List, in any order.
func (t *Tenants) Names(ctx context.Context) ([]string, error) {
	all, err := t.store.Documents(ctx, state.TenantDocument)
	return slices.Collect(maps.Keys(all)), err
}

// Read returns the settings of a tenant from the store, or state.ErrNotFound.
func (t *Tenants) Read(ctx context.Context, name string) (api.TenantSettings, error) {
	stored, err := t.read(ctx, name)
	return stored.TenantSettings, err
}

func (t *Tenants) read(ctx context.Context, name string) (storedTenant, error) {
	return t.decode(ctx, state.TenantDocument, name)
}

func (t *Tenants) decode(ctx context.Context, kind state.DocumentKind, name string) (stored storedTenant, err error) {
	data, err := t.store.Document(ctx, kind, name)
	if err != nil {
		return stored, err
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		return stored, fmt.Errorf("decode tenant %s: %w", name, err)
	}
	return stored, nil
}

// Settings returns the settings of a tenant, at most two seconds old. It stores a tenant that does not exist, without
// settings, so that code that visits all tenants finds it; it does not store a default tenant. A deleted tenant has its
// last settings, and is suspended; a deleted default tenant has none. The error reports an invalid name, or is that of
// reading or writing the store.
func (t *Tenants) Settings(ctx context.Context, name string) (api.TenantSettings, error) {
	stored, err := t.known(ctx, name)
	return stored.TenantSettings, err
}

// IndexedFrom returns the metadata keys that a tenant indexes, each with an id: all runs with this id or a later one
// are in the index. For a key that was just added the id is that of a time up to a minute ahead. The answer is at most
// two seconds old. Errors are as for Settings, and like Settings it may store the tenant. It relies on the processes
// that create runs: they read Settings after they have made the id of a run.
func (t *Tenants) IndexedFrom(ctx context.Context, name string) (map[string]state.RunID, error) {
	stored, err := t.known(ctx, name)
	return stored.IndexedFrom, err
}

func (t *Tenants) known(ctx context.Context, name string) (storedTenant, error) {
	now := t.now()
	t.mu.Lock()
	r, known := t.fresh[name]
	t.mu.Unlock()
	if known && now.Sub(r.at) < tenantFresh {
		return r.tenant, nil
	}
	stored, err := t.read(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		stored, err = t.decode(ctx, state.DeletedTenantDocument, name)
	}
	if errors.Is(err, state.ErrNotFound) {
		err = nil
		if !t.always(name) {
			stored, err = t.addPlain(ctx, name)
		}
	}
	if err != nil {
		return storedTenant{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) >= maxFresh {
		clear(t.fresh)
	}
	t.fresh[name] = readTenant{tenant: stored, at: now}
	return stored, nil
}
