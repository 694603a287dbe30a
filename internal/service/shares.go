package service

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Limits on what the triggers of a gateway process at once: messages, messages of one tenant, and bytes. A tenant with
// a long backlog leaves three quarters of the messages to others.
const (
	triggersAtOnce         = 32
	triggersOfTenant       = 8
	triggerBytes     int64 = 64 << 20

	// decoded is the estimated memory of a decoded body, in bytes for each byte of the body.
	decoded = 16
)

// shares limits what triggers process at once. Callers get shares in the order in which they arrived.
type shares struct {
	all   *semaphore.Weighted
	bytes *semaphore.Weighted

	mu      sync.Mutex
	tenants map[string]*tenantShare
}

// tenantShare is the share of a tenant, and the number of callers that use or wait for it.
type tenantShare struct {
	semaphore *semaphore.Weighted
	users     int
}

func newShares() *shares {
	return &shares{all: semaphore.NewWeighted(triggersAtOnce), bytes: semaphore.NewWeighted(triggerBytes), tenants: map[string]*tenantShare{}}
}

// enter waits until a trigger of a tenant may process a message of size bytes. The error is that of ctx. If it is nil,
// the caller must call leave; further calls have no effect.
func (s *shares) enter(ctx context.Context, tenant string, size int64) (leave func(), err error) {
	own, done := s.of(tenant)
	if err := own.Acquire(ctx, 1); err != nil {
		done()
		return nil, err
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		done()
		return nil, err
	}
	memory := min(max(1, size*decoded), triggerBytes)
	if err := s.bytes.Acquire(ctx, memory); err != nil {
		s.all.Release(1)
		own.Release(1)
		done()
		return nil, err
	}
	return sync.OnceFunc(func() {
		s.bytes.Release(memory)
		s.all.Release(1)
		own.Release(1)
		done()
	}), nil
}

// of returns the share of a tenant, which exists until its last user has called done.
func (s *shares) of(tenant string) (own *semaphore.Weighted, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.tenants[tenant]
	if share == nil {
		share = &tenantShare{semaphore: semaphore.NewWeighted(triggersOfTenant)}
		s.tenants[tenant] = share
	}
	share.users++
	return share.semaphore, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if share.users--; share.users == 0 {
			delete(s.tenants, tenant)
		}
	}
}
