package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// fresh is the age at which a policy is read again.
	fresh = 2 * time.Second

	// grace bounds how long other callers still use a policy while one caller reads it again.
	grace = time.Second

	// stale is the maximum age of a policy that is used while the store does not answer.
	stale = 30 * time.Second

	// most is the maximum number of cached tenants.
	most = 10_000
)

// Reader reads the policies of tenants, and caches each for two seconds. It is safe for concurrent use.
type Reader struct {
	store state.Documents
	now   func() time.Time

	mu   sync.Mutex
	read map[string]entry
}

type entry struct {
	policy Policy
	at     time.Time // when it was read
	next   time.Time // when it must be read again
}

// NewReader returns a Reader of the settings of tenants in a store.
func NewReader(store state.Documents) *Reader {
	return &Reader{store: store, now: time.Now, read: map[string]entry{}}
}

// Of returns the policy of a tenant: one that was read at most three seconds before the call or, while reads fail, at
// most 31 seconds before it; else the error of reading it. A deleted tenant keeps its policy; a tenant without settings
// has one that allows everything.
func (r *Reader) Of(ctx context.Context, tenant string) (Policy, error) {
	now := r.now()
	r.mu.Lock()
	e, known := r.read[tenant]
	if known && now.Before(e.next) {
		r.mu.Unlock()
		return e.policy, nil
	}
	if known {
		// Other callers use the cached policy while this one reads, unless it is too old for that.
		e.next = e.at.Add(fresh + grace)
		r.read[tenant] = e
	}
	r.mu.Unlock()

	p, err := r.ask(ctx, tenant)
	if err != nil {
		if known && now.Sub(e.at) < stale {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.read[tenant].at.Equal(e.at) { // the store does not answer: one caller in a second asks it
				e.next = now.Add(grace)
				r.read[tenant] = e
			}
			return e.policy, nil
		}
		return Policy{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.read) >= most {
		clear(r.read)
	}
	r.read[tenant] = entry{policy: p, at: now, next: now.Add(fresh)}
	return p, nil
}

func (r *Reader) ask(ctx context.Context, tenant string) (Policy, error) {
	data, err := r.store.Document(ctx, state.TenantDocument, tenant)
	if errors.Is(err, state.ErrNotFound) { // runs of a deleted tenant keep its restrictions
		data, err = r.store.Document(ctx, state.DeletedTenantDocument, tenant)
	}
	if errors.Is(err, state.ErrNotFound) {
		return Policy{tenant: tenant}, nil
	}
	if err != nil {
		return Policy{}, fmt.Errorf("read the settings of tenant %s: %w", tenant, err)
	}
	var settings api.TenantSettings
	if err := json.Unmarshal(data, &settings); err != nil {
		return Policy{}, fmt.Errorf("decode tenant %s: %w", tenant, err)
	}
	return Of(tenant, settings), nil
}
