package service

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// What the triggers of a gateway may work on at once. Those of one tenant have a quarter at most, so that
// a tenant with a long backlog leaves the rest to others and to requests.
const (
	triggersAtOnce         = 32
	triggersOfTenant       = 8
	triggerBytes     int64 = 64 << 20

	// decoded is the memory that a byte of a body may need once it is decoded.
	decoded = 16
)

// shares let triggers take turns: callers wait in the order in which they came.
type shares struct {
	all   *semaphore.Weighted
	bytes *semaphore.Weighted

	mu      sync.Mutex
	tenants map[string]*tenantShare
}

// tenantShare is the share of a tenant, and the number of callers that use it.
type tenantShare struct {
	semaphore *semaphore.Weighted
	users     int
}

func newShares() *shares {
	return &shares{all: semaphore.NewWeighted(triggersAtOnce), bytes: semaphore.NewWeighted(triggerBytes), tenants: map[string]*tenantShare{}}
}

// enter waits until a trigger of a tenant may work on a message with a size. The caller must call leave.
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

// of returns the share of a tenant, which exists until its last user is done.
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
